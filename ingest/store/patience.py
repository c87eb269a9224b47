"""Which failures of an object store pass, how long they are waited for, and what the others say."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import RetimeError, StoreBusy, StoreRefused, line_of
from .addresses import without_secrets

ATTEMPTS = 8
FIRST_DELAY_S = 0.1
MOST_DELAY_S = 8.0

_PASSING_ERRNO = (
    errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT, errno.ECONNRESET, errno.ECONNREFUSED,
    errno.ECONNABORTED, errno.EPIPE, errno.EREMOTEIO, errno.ENETUNREACH, errno.EHOSTUNREACH,
    errno.ENETDOWN, errno.ENETRESET,
)  # fmt: skip
_PASSING_CODES = (
    "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "OperationAborted",
    "ConditionalRequestConflict", "Throttling", "ThrottlingException", "RequestThrottled",
    "RequestLimitExceeded", "BandwidthLimitExceeded", "TooManyRequests", "BadDigest",
    "IncompleteBody", "XAmzContentSHA256Mismatch", "RequestTimeoutException",
)  # fmt: skip
_ACCESS = (
    "AccessDenied", "AllAccessDisabled", "ExpiredToken", "ExpiredTokenException", "Forbidden",
    "InvalidAccessKeyId", "InvalidToken", "InvalidSecurity", "SignatureDoesNotMatch", "403", "401",
    "TokenRefreshRequired", "UnauthorizedAccess",
)  # fmt: skip
_REGION = (
    "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
    "TemporaryRedirect", "301", "307",
)  # fmt: skip
_CHAIN = (
    "check the credentials that the ordinary chain finds (environment, profile, the machine's "
    "role), AWS_ENDPOINT_URL and the region"
)

T = TypeVar("T")


class Short(Exception):
    """An answer with fewer or more bytes than were asked for."""


def patiently(call: Callable[[], T], address: str, what: str = "read") -> T:
    """What `call` gives, tried again with growing pauses while its failures may pass.

    FileNotFoundError and FileExistsError come through as they are. Raises StoreBusy where it
    still fails after `ATTEMPTS`, StoreRefused for what no try would change. `what` says what is
    done at `address` ("read", "written", "listed").
    """
    for attempt in range(ATTEMPTS):
        try:
            return call()
        except RetimeError:
            raise
        except Exception as e:
            if isinstance(e, FileNotFoundError) and code_of(e) != "NoSuchBucket":
                raise
            if isinstance(e, FileExistsError):
                raise
            if not passing(e):
                raise StoreRefused(_refusal(e, address, what)) from e
            if attempt == ATTEMPTS - 1:
                if isinstance(e, Short):
                    raise StoreRefused(f"{address}: damaged: {e}") from e
                raise StoreBusy(_busy(e, address, what)) from e
            most = min(MOST_DELAY_S, FIRST_DELAY_S * 2**attempt)
            time.sleep(random.uniform(most / 2, most))
    raise AssertionError("not reached")


def passing(e: BaseException) -> bool:
    """Whether a failure may pass by itself."""
    code, status = code_of(e), status_of(e)
    if code in _PASSING_CODES or status == 429 or (status >= 500 and status != 501):
        return True
    if status:
        return False
    if isinstance(e, Short | TimeoutError | ConnectionError):
        return True
    if isinstance(e, OSError) and e.errno in _PASSING_ERRNO:
        return True
    for kind in type(e).__mro__:
        # By name: the packages of other stores need not be there.
        module, name = kind.__module__.partition(".")[0], kind.__name__
        if module == "asyncio" and name in ("TimeoutError", "IncompleteReadError"):
            return True
        if module == "aiohttp" and name in ("ClientPayloadError", "ClientConnectionError"):
            return True
        if module in ("botocore", "aiobotocore") and name in (
            "HTTPClientError", "ResponseParserError", "IncompleteReadError",
            "ResponseStreamingError", "ConnectionError", "FlexibleChecksumError",
        ):  # fmt: skip
            return True
        if name == "FSTimeoutError" or (module == "http" and name == "IncompleteRead"):
            return True
    return False


def code_of(e: BaseException) -> str:
    """The store's own word for a failure ("SlowDown"); empty where it has none."""
    return str(_answer(e).get("Error", {}).get("Code") or "")


def status_of(e: BaseException) -> int:
    """The HTTP status that a failure came with; 0 for none."""
    status = _answer(e).get("ResponseMetadata", {}).get("HTTPStatusCode")
    for name in ("status", "status_code", "code"):
        status = status or getattr(e, name, None)
    try:
        found = int(status or 0)
    except (TypeError, ValueError):
        return 0
    return found if 100 <= found < 600 else 0


def _answer(e: BaseException) -> dict:
    """What the S3 client kept of the server's answer, on the error or on what it came from."""
    for one in (e, e.__cause__, e.__context__):
        answer = getattr(one, "response", None)
        if isinstance(answer, dict):
            return answer
    return {}


def _busy(e: BaseException, address: str, what: str) -> str:
    said = code_of(e) or status_of(e) or without_secrets(line_of(e))
    return (
        f"{address}: cannot be {what} now ({said}), after {ATTEMPTS} tries: the store is busy or "
        "cannot be reached; try again later, and check AWS_ENDPOINT_URL and the network if it stays"
    )


def _refusal(e: BaseException, address: str, what: str) -> str:
    code, status = code_of(e), status_of(e)
    names = {kind.__name__ for kind in type(e).__mro__}
    if code == "NoSuchBucket":
        return f"{address}: no such bucket; check its name, AWS_ENDPOINT_URL and the region"
    if code == "RequestTimeTooSkewed":
        return f"{address}: refused, as this machine's clock is wrong ({code}); set its clock"
    if names & {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}:
        return f"{address}: no credentials found; {_CHAIN}"
    if names & {"ProfileNotFound", "TokenRetrievalError", "SSOTokenLoadError"}:
        return f"{address}: no usable credentials ({type(e).__name__}); {_CHAIN}"
    if code in _REGION:
        return f"{address}: another region or endpoint has it ({code}); set AWS_DEFAULT_REGION"
    if code in _ACCESS or status in (401, 403) or isinstance(e, PermissionError):
        said = code if code and not code.isdecimal() else status or "no permission"
        return f"{address}: access refused, cannot be {what} ({said}); {_CHAIN}"
    said = code or status or f"{type(e).__name__}: {without_secrets(line_of(e))}"
    return f"{address}: cannot be {what} ({said})"
