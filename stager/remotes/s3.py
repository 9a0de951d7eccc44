"""Opens a prefix of an S3 bucket with one of two drivers. Needs the extra ``s3``, so that nothing imports it early."""

import importlib.util

from stager.remotes.driver import ObjectDriver
from stager.remotes.objects import ObjectRemote
from stager.remotes.options import RemoteOptions, S3Driver
from stager.remotes.s3_settings import S3Settings, find_credentials, open_session, read_settings


def open_s3(source: str, options: RemoteOptions, num_connections: int) -> ObjectRemote:
    """Open a prefix of a bucket.

    Args:
        source: ``s3://bucket/prefix``, without a slash at the end.
        options: how it is reached.
        num_connections: requests at the same time.

    Raises:
        RemoteError: a setting is wrong, or there are no credentials.
        ImportError: the driver is not installed.
    """
    bucket, _, prefix = source.partition("://")[2].partition("/")
    session = open_session(options)
    settings = read_settings(session, options, bucket, num_connections)
    wanted = options.s3_driver
    if wanted is S3Driver.AUTO and importlib.util.find_spec("obstore") is None:
        wanted = S3Driver.S3FS
    make_fallback = None
    if wanted is S3Driver.S3FS:
        driver = _open_s3fs(settings)
    else:
        from stager.remotes.obstore_driver import ObstoreDriver  # noqa: PLC0415 (may not be installed)

        driver = ObstoreDriver(settings, find_credentials(session, options))
        if wanted is S3Driver.AUTO and importlib.util.find_spec("s3fs") is not None:
            make_fallback = lambda: _open_s3fs(settings)  # noqa: E731
    return ObjectRemote(driver, source, f"{prefix}/" if prefix else "", options.stall_seconds, make_fallback)


def _open_s3fs(settings: S3Settings) -> ObjectDriver:
    from stager.remotes.s3fs_driver import S3fsDriver  # noqa: PLC0415 (half a second to import)

    return S3fsDriver(settings)
