"""SaslHandshake (17) 0-1, SaslAuthenticate (36) 0-2, and the check before all other APIs (the states: session.py).

A failed authentication is answered, if at all, and closed after `connection.failed.authentication.delay.ms`: a
mechanism that is not enabled with UNSUPPORTED_SASL_MECHANISM and the list of enabled ones (in a re-authentication it
only closes the connection), bad credentials with SASL_AUTHENTICATION_FAILED and Kafka's message. A request other than
the three of authentication is never served before it: at the beginning it closes the connection, between two tokens it
first gets ILLEGAL_SASL_STATE if its response has an error code. After a successful authentication both APIs return
ILLEGAL_SASL_STATE and the connection stays open, unless the session has a lifetime and SaslHandshake begins the next
one.
"""

from __future__ import annotations

from kafka_sink.kafka.wire.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_sink.testing.api.parts import Answer
from kafka_sink.testing.call import Call
from kafka_sink.testing.core import BrokerCore
from kafka_sink.testing.errors import AuthenticationFailed, Code, Refused
from kafka_sink.testing.sasl import new_exchange
from kafka_sink.testing.session import Session, Stage

AUTHENTICATED_ALREADY = "SaslAuthenticate request received after successful authentication"


def is_admitted(call: Call) -> bool:
    """Whether this request may be handled. If not, it has been answered or its connection closed."""
    session, api = call.session, call.api
    if session.is_ready:
        if api is SASL_HANDSHAKE and session.may_authenticate_again(call.now_ms):
            session.authenticate_again(call.now_ms)
        elif session.has_expired(call.now_ms):
            call.hang_up()
            return False
        return True
    if session.stage in (Stage.VERSIONS, Stage.HANDSHAKE):
        if api is API_VERSIONS and session.stage is Stage.HANDSHAKE:
            call.hang_up()
            return False
        if api not in (API_VERSIONS, SASL_HANDSHAKE):
            call.fail_authentication(None)
            return False
        return True
    if api is SASL_AUTHENTICATE:
        return True
    has_place = any(row.name == "error_code" and row.is_in(call.version) for row in api.response)
    call.fail_authentication({"error_code": Code.ILLEGAL_SASL_STATE} if has_place else None)
    return False


def on_handshake(call: Call) -> Answer | None:
    session = call.session
    if session.is_ready:
        raise Refused(Code.ILLEGAL_SASL_STATE)
    mechanism, enabled = call.body["mechanism"], call.core.settings.names("sasl.enabled.mechanisms")
    try:
        call.check_fault()
        if mechanism not in enabled:
            raise Refused(Code.UNSUPPORTED_SASL_MECHANISM)
    except Refused as refusal:
        if session.is_reauthenticating:
            call.hang_up()
        else:
            call.fail_authentication({"error_code": refusal.code, "mechanisms": enabled})
        return None
    host = call.core.cluster.brokers[call.broker_id].host
    exchange = new_exchange(mechanism, call.core.credentials, host, call.now_ms)
    session.on_handshake(mechanism, exchange, has_bare_tokens=call.version == 0)
    return {"error_code": 0, "mechanisms": enabled}


def on_authenticate(call: Call) -> Answer | None:
    session = call.session
    if session.is_ready:
        return {"error_code": Code.ILLEGAL_SASL_STATE, "error_message": AUTHENTICATED_ALREADY}
    if session.stage is Stage.WRONG_MECHANISM:
        call.fail_authentication(None)
        return None
    lifetime_ms = call.core.settings.number("connections.max.reauth.ms")
    try:
        call.check_fault()
        answer = session.on_token(call.body["auth_bytes"], call.now_ms, lifetime_ms)
    except (AuthenticationFailed, Refused) as failure:
        code = failure.code if isinstance(failure, Refused) else Code.SASL_AUTHENTICATION_FAILED
        token = call.core.settings.quirk.refused_token
        call.fail_authentication({"error_code": code, "error_message": str(failure), "auth_bytes": token})
        return None
    left_ms = lifetime_ms if session.is_ready else 0
    return {"error_code": 0, "error_message": "", "auth_bytes": answer, "session_lifetime_ms": left_ms}


def on_bare_token(core: BrokerCore, connection_id: int, session: Session, token: bytes) -> None:
    """After SaslHandshake v0: there is no way to return an error."""
    lifetime_ms = core.settings.number("connections.max.reauth.ms")
    try:
        if session.stage is Stage.WRONG_MECHANISM:
            raise AuthenticationFailed
        answer = session.on_token(token, core.schedule.now_ms, lifetime_ms)
    except AuthenticationFailed:
        core.fail_authentication(connection_id, b"")
        return
    core.send(connection_id, len(answer).to_bytes(4, "big") + answer)
