"""Names the environment variables of options after their flags: ``--shard-size`` is ``PACK_SHARD_SIZE``.

click would name them after the parameters of the function, which are called otherwise where a flag is a Python
keyword or a built-in name (``--format``, ``--json``).
"""

import click


def name_variables(command: click.Command, prefix: str) -> click.Command:
    """Give every option of a command that has no variable yet the one that its flag implies.

    Options that act at once, such as ``--version``, get none: a variable would switch them on for ever.

    Args:
        command: changed in place.
        prefix: of the program, for instance ``"PACK"``.

    Returns:
        The command.
    """
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None and not option.is_eager:
            flag = max((name for name in option.opts if name.startswith("--")), key=len, default="")
            if flag:
                option.envvar = f"{prefix}_{flag.removeprefix('--').replace('-', '_').upper()}"
    return command
