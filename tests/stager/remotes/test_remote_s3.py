"""S3 servers that refuse, stall, break off and lie; and what both drivers make of that."""

import pytest

from shards.errors import (
    RemoteBusyError,
    RemoteChangedError,
    RemoteDeniedError,
    RemoteError,
    RemoteMissingError,
    RemoteUnreachableError,
)
from stager.remotes.base import RemoteVersion
from tests.stager.remotes.scripted_s3 import ETAG, Answer, error, serve_object

CONTENT = bytes(range(256)) * 40
VERSION = RemoteVersion(len(CONTENT), ETAG, ETAG)

pytest.importorskip("obstore")
pytest.importorskip("s3fs")


@pytest.fixture(params=["obstore", "s3fs"])
def place(request, scripted, scripted_place):
    scripted.answer = lambda request: serve_object(request, CONTENT)
    return scripted_place(s3_driver=request.param, stall_seconds=2.0)


def stat(place):
    return place.run(lambda remote: remote.stat("file"))


def read(place, offset=0, size=len(CONTENT), version=VERSION):
    async def work(remote):
        buffer = bytearray(size)
        await remote.read_range("file", offset, memoryview(buffer), version)
        return bytes(buffer)

    return place.run(work)


def answer_first(scripted, *answers):
    """Answer the first requests in these ways, and the others well."""
    left = list(answers)
    scripted.answer = lambda request: left.pop(0) if left else serve_object(request, CONTENT)


def test_a_good_server_is_read(place):
    assert stat(place) == VERSION
    assert read(place, 100, 200) == CONTENT[100:300]


# refusals, told apart


REFUSALS = [
    (404, "NoSuchKey", RemoteMissingError, "no such object"),
    (404, "NoSuchBucket", RemoteMissingError, "no such bucket"),
    (403, "AccessDenied", RemoteDeniedError, "s3:GetObject"),
    (403, "InvalidAccessKeyId", RemoteDeniedError, "AWS_ACCESS_KEY_ID"),
    (403, "SignatureDoesNotMatch", RemoteDeniedError, "AWS_SECRET_ACCESS_KEY"),
    (403, "RequestTimeTooSkewed", RemoteDeniedError, "clock"),
    (400, "InvalidToken", RemoteDeniedError, "AWS_SESSION_TOKEN"),
    (403, "SomethingNew", RemoteDeniedError, "SomethingNew"),
    (405, "MethodNotAllowed", RemoteMissingError, "--endpoint-url"),
    (400, "AuthorizationHeaderMalformed", RemoteError, "--region eu-west-7"),
    (400, "SomethingNew", RemoteError, "SomethingNew"),
]


@pytest.mark.parametrize(("status", "code", "kind", "advice"), REFUSALS)
@pytest.mark.parametrize("call", [stat, read])
def test_refusals_are_told_apart_and_not_repeated(place, scripted, status, code, kind, advice, call):
    scripted.answer = lambda request: error(status, code, "words", "<Region>eu-west-7</Region>")
    with pytest.raises(kind, match=advice) as caught:
        call(place)
    assert not caught.value.is_transient
    assert "s3://bucket/set/file" in str(caught.value)
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_busy_servers_are_worth_a_repeat(place, scripted, status):
    scripted.answer = lambda request: error(status, "SlowDown" if status == 503 else "")
    with pytest.raises(RemoteBusyError, match=str(status)) as caught:
        read(place)
    assert caught.value.is_transient


def test_a_storm_of_503_passes(scripted, scripted_place):
    answer_first(scripted, *[error(503, "SlowDown")] * 4)
    assert read(scripted_place(retry_seconds=60.0)) == CONTENT
    assert len(scripted.requests) == 5


def test_a_server_says_how_long_to_wait(scripted, scripted_place):
    scripted.answer = lambda request: error(503, "SlowDown", Retry_After="17")
    with pytest.raises(RemoteBusyError) as caught:
        read(scripted_place(s3_driver="s3fs"))
    assert caught.value.retry_after_seconds == 17.0


@pytest.mark.parametrize(
    ("url", "kind", "advice"),
    [
        ("http://127.0.0.1:9", RemoteUnreachableError, "nothing listens"),
        ("http://no-such-host.invalid", RemoteUnreachableError, "no address"),
        ("https://127.0.0.1:{port}", RemoteError, "http://"),
        ("ftp://127.0.0.1", RemoteError, "does not begin with http"),
    ],
)
@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_wrong_endpoints_are_told_apart(scripted, scripted_place, driver, url, kind, advice):
    url = url.format(port=scripted.url.rpartition(":")[2])
    with pytest.raises(kind, match=advice):
        stat(scripted_place(endpoint_url=url, s3_driver=driver))


# answers that are not what was asked for


def test_silence_in_the_middle_is_given_up(place, scripted):
    scripted.answer = lambda request: Answer(
        206, CONTENT, {"ETag": ETAG, "Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}, stall_seconds=600
    )
    with pytest.raises(RemoteBusyError, match="sent nothing for 2 s"):
        read(place)


def test_a_repeat_after_silence_gets_another_connection(scripted, scripted_place):
    range_header = {"ETag": ETAG, "Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}
    answer_first(scripted, Answer(206, CONTENT, range_header, stall_seconds=600))
    assert read(scripted_place(stall_seconds=0.5, retry_seconds=60.0)) == CONTENT


@pytest.mark.parametrize("sent_bytes", [0, 100])
def test_a_connection_that_breaks_is_worth_a_repeat(place, scripted, sent_bytes):
    header = {"ETag": ETAG, "Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}
    scripted.answer = lambda request: Answer(206, CONTENT, header, sent_bytes=sent_bytes)
    with pytest.raises(RemoteBusyError) as caught:
        read(place)
    assert caught.value.is_transient


def test_a_server_that_ignores_the_condition_is_found_out(place, scripted):
    def answer(request):
        headers = {name: value for name, value in request.headers.items() if name != "if-match"}
        return serve_object(type(request)(request.method, request.path, headers), CONTENT, etag='"another"')

    scripted.answer = answer
    with pytest.raises(RemoteChangedError, match="another"):
        read(place)


def test_a_server_that_keeps_the_condition_says_changed(place, scripted):
    scripted.answer = lambda request: serve_object(request, CONTENT, etag='"another"')
    with pytest.raises(RemoteChangedError):
        read(place)


def with_status_200(request, *, content_range=True, content=CONTENT):
    good = serve_object(request, content)
    headers = {name: value for name, value in good.headers.items() if content_range or name != "Content-Range"}
    return Answer(200, good.body, headers)


@pytest.mark.parametrize("driver", ["auto", "s3fs"])
def test_a_range_that_comes_as_200_is_taken(scripted, scripted_place, driver):
    scripted.answer = with_status_200
    assert read(scripted_place(s3_driver=driver), 100, 200) == CONTENT[100:300]


@pytest.mark.parametrize("driver", ["auto", "s3fs"])
def test_the_whole_object_may_come_as_200_where_it_was_asked_for(scripted, scripted_place, driver):
    scripted.answer = lambda request: with_status_200(request, content_range=False)
    assert read(scripted_place(s3_driver=driver)) == CONTENT


@pytest.mark.parametrize("driver", ["auto", "obstore", "s3fs"])
def test_the_whole_object_in_place_of_a_part_is_refused(scripted, scripted_place, driver):
    scripted.answer = lambda request: Answer(200, CONTENT, {"ETag": ETAG})
    with pytest.raises(RemoteError, match="ignores ranges") as caught:
        read(scripted_place(s3_driver=driver), 100, 200)
    assert not caught.value.is_transient


# who asks, and how


def test_a_request_carries_what_was_asked_for(scripted, scripted_place, place, aws):
    aws.setenv("AWS_SESSION_TOKEN", "a-token")
    read(place, 100, 200)
    headers = scripted.requests[-1].headers
    assert scripted.requests[-1].path == "/bucket/set/file"
    assert headers["range"] == "bytes=100-299"
    assert headers["if-match"] == ETAG
    assert headers["x-amz-security-token"] == "a-token"
    assert "Credential=id/" in headers["authorization"]
    assert "x-amz-request-payer" not in headers


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_anonymous_requests_are_not_signed(scripted, scripted_place, driver):
    scripted.answer = lambda request: serve_object(request, CONTENT)
    read(scripted_place(s3_driver=driver, is_anonymous=True))
    assert "authorization" not in scripted.requests[-1].headers


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_readers_who_pay_say_so(scripted, scripted_place, driver):
    scripted.answer = lambda request: serve_object(request, CONTENT)
    place = scripted_place(s3_driver=driver, is_requester_pays=True)
    stat(place)
    read(place)
    assert all(request.headers.get("x-amz-request-payer") == "requester" for request in scripted.requests)


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
@pytest.mark.parametrize(
    ("style", "url"),
    [
        ("virtual", "http://bucket.rgw.example/set/file"),
        ("path", "http://rgw.example/bucket/set/file"),
        ("auto", "http://rgw.example/bucket/set/file"),
    ],
)
def test_the_bucket_stands_in_host_or_path_and_a_proxy_is_used(scripted, scripted_place, driver, aws, style, url):
    for name in ("HTTP_PROXY", "http_proxy"):
        aws.setenv(name, scripted.url)
    scripted.answer = lambda request: serve_object(request, CONTENT)
    read(scripted_place(s3_driver=driver, endpoint_url="http://rgw.example", addressing_style=style))
    assert scripted.requests[-1].path == url  # as a proxy is asked


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_a_profile_gives_credentials_endpoint_and_region(scripted, scripted_place, driver, aws, tmp_path):
    scripted.answer = lambda request: serve_object(request, CONTENT)
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "no-config").write_text(f"[profile training]\nregion = eu-south-9\nendpoint_url = {scripted.url}\n")
    (tmp_path / "no-credentials").write_text("[training]\naws_access_key_id = of-profile\naws_secret_access_key = s\n")
    read(scripted_place(s3_driver=driver, endpoint_url=None, profile="training"))
    authorization = scripted.requests[-1].headers["authorization"]
    assert "Credential=of-profile/" in authorization
    assert "/eu-south-9/s3/" in authorization


def test_a_profile_that_does_not_exist_is_named(scripted_place):
    with pytest.raises(RemoteError, match="nowhere"):
        stat(scripted_place(profile="nowhere"))


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_no_credentials_at_all_are_a_refusal_with_advice(scripted_place, driver, aws):
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(RemoteDeniedError, match="--anonymous"):
        stat(scripted_place(s3_driver=driver))


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_an_expired_token_is_read_anew_once(scripted, scripted_place, driver, aws, tmp_path):
    """A sidecar has replaced the credentials file meanwhile."""
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "no-credentials"
    file.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = s\n")

    def answer(request):
        if "Credential=old/" in str(request.headers):
            file.write_text("[default]\naws_access_key_id = new\naws_secret_access_key = s\n")
            return error(400, "ExpiredToken", "The provided token has expired.")
        return serve_object(request, CONTENT)

    scripted.answer = answer
    assert read(scripted_place(s3_driver=driver)) == CONTENT
    assert len(scripted.requests) == 2


@pytest.mark.parametrize("driver", ["obstore", "s3fs"])
def test_a_token_that_stays_expired_is_a_refusal(scripted, scripted_place, driver):
    scripted.answer = lambda request: error(400, "ExpiredToken")
    with pytest.raises(RemoteDeniedError, match="read anew"):
        read(scripted_place(s3_driver=driver))
    assert len(scripted.requests) == 2
