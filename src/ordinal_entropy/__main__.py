"""``python -m ordinal_entropy`` is the command ``ordinal-entropy``."""

from ordinal_entropy.commands import main

if __name__ == "__main__":
    main()
