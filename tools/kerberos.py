"""A Kerberos realm for tests: MIT's KDC on a free port, with its database, logs and krb5.conf in one temporary folder.

    with Realm() as realm:
        keytab = realm.add("alice")
        os.environ["KRB5_CONFIG"] = str(realm.config)

The system's files are neither read nor written: KRB5_CONFIG and KRB5_KDC_PROFILE point into the folder. Needs Debian's
packages krb5-kdc, krb5-admin-server and krb5-user.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from tools.kafka_node import HOST, free_port
from tools.waiting import wait_until
from tools.workspace import workspace

PACKAGES = "krb5-kdc krb5-admin-server krb5-user libkrb5-dev"
NAME = "PYKAFKA-SINK.TEST"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"))
# A host has one clock, but a busy host takes seconds from the creation of an authenticator to its check.
_CLOCK_SKEW_S = 120


class KerberosUnavailable(Exception):
    """The text says what is missing and which command installs it."""


class Realm:
    def __init__(self) -> None:
        missing = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
        if missing:
            raise KerberosUnavailable(f"{', '.join(missing)} not found: apt-get install {PACKAGES}")
        self._ends = ExitStack()
        self.folder = self._ends.enter_context(workspace("pykafka-sink-kdc-"))
        self.config = self.folder / "krb5.conf"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Realm:
        try:
            self._write_configuration()
            self._run("kdb5_util", "create", "-s", "-r", NAME, "-P", "of the database")
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stop()
        self._ends.close()

    def start(self) -> None:
        with (self.folder / "kdc.out").open("ab") as log:
            # The path of its pid file is in the folder, so the watchdog finds the process.
            command = [str(shutil.which("krb5kdc", path=_PATH)), "-n", "-P", str(self.folder / "kdc.pid")]
            self._process = subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log)
        process = self._process

        def is_open() -> bool:
            if process.poll() is not None:
                said = (self.folder / "kdc.out").read_text(errors="replace")
                raise RuntimeError(f"the KDC did not start: {said}")
            socket.create_connection((HOST, self._port), timeout=1).close()
            return True

        wait_until(is_open, "the KDC takes connections", passing=(OSError,))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def add(self, principal: str, life: str = "1 day") -> Path:
        """Adds a principal with a random key and returns its keytab; `life` is the maximum lifetime of its tickets."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._admin(f'addprinc -randkey -maxlife "{life}" {principal}')
        self._admin(f"ktadd -k {path} {principal}")
        return path

    def remove(self, principal: str) -> None:
        self._admin(f"delprinc -force {principal}")

    def new_key(self, principal: str) -> None:
        """Changes the key, so that the existing keytab is no longer valid."""
        self._admin(f"cpw -randkey {principal}")

    def kinit(self, principal: str, cache: Path, *more: str) -> None:
        keytab = self.folder / f"{principal}.keytab"
        self._run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{cache}", *more, principal)

    def environment(self) -> dict[str, str]:
        profile = self.folder / "kdc.conf"
        return {**os.environ, "PATH": _PATH, "KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}

    def _admin(self, query: str) -> None:
        self._run("kadmin.local", "-r", NAME, "-q", query)

    def _run(self, *command: str) -> None:
        found = shutil.which(command[0], path=_PATH) or command[0]
        done = subprocess.run([found, *command[1:]], env=self.environment(), capture_output=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')}")

    def _write_configuration(self) -> None:
        # Host names are used as given: Java and MIT canonicalize them differently.
        self.config.write_text(
            f"[libdefaults]\n default_realm = {NAME}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f" dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
            f" clockskew = {_CLOCK_SKEW_S}\n forwardable = false\n"
            f"[realms]\n {NAME} = {{\n  kdc = {HOST}:{self._port}\n }}\n"
            f"[logging]\n kdc = FILE:{self.folder}/kdc.log\n default = FILE:{self.folder}/krb5.log\n"
        )
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = {HOST}:{self._port}\n kdc_tcp_listen = {HOST}:{self._port}\n"
            f"[realms]\n {NAME} = {{\n  database_name = {self.folder}/principal\n"
            f"  key_stash_file = {self.folder}/stash\n  acl_file = {self.folder}/kadm5.acl\n  max_life = 1d\n }}\n"
        )
