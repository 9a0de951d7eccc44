"""``sftp_server.py PORT DIRECTORY``: an SSH server on loopback that serves files below a directory."""

import asyncio
import sys

import asyncssh

PASSWORD = "open sesame"


class Doorkeeper(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == PASSWORD


class Files(asyncssh.SFTPServer):
    def __init__(self, channel: asyncssh.SSHServerChannel) -> None:
        super().__init__(channel, chroot=sys.argv[2])


async def main() -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    await asyncssh.create_server(Doorkeeper, "127.0.0.1", int(sys.argv[1]), server_host_keys=[key], sftp_factory=Files)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
