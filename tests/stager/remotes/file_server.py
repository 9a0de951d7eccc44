"""``file_server.py PORT DIRECTORY``: a web server with ranges, ETags and conditions."""

import sys

from aiohttp import web


def main() -> None:
    application = web.Application()
    application.router.add_static("/", sys.argv[2])
    web.run_app(application, host="127.0.0.1", port=int(sys.argv[1]), print=None)


if __name__ == "__main__":
    main()
