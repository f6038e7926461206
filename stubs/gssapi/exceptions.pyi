class GSSError(Exception):
    maj_code: int
    min_code: int
    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]: ...
