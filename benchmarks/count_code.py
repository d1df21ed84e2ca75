"""Lines of code of each package, without comments, docstrings and blanks.

python benchmarks/count_code.py                                # of this tree
python benchmarks/count_code.py --before ../other-checkout/src    # beside another one
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

import record

HERE = Path(__file__).parent
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source: str) -> int:
    """Of one file."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documentation |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documentation)


def counted(tree: Path) -> dict[str, Any]:
    """Lines by package, in all, and in all outside of ``kernels``."""
    root, found = tree / "ordinal_entropy", Counter[str]()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        found[parts[0] if len(parts) > 1 else "(top)"] += lines_of_code(path.read_text(encoding="utf-8"))
    return {
        "packages": dict(sorted(found.items())),
        "all": found.total(),
        "outside_kernels": found.total() - found["kernels"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the source tree to set it beside")
    parser.add_argument("--out", type=Path, default=HERE / "count_code.json")
    options = parser.parse_args()
    trees = {"after": HERE.parent / "src", **({"before": options.before} if options.before else {})}
    results = {name: counted(tree) for name, tree in trees.items()}
    for name, found in results.items():
        print(f"{name}: {found['all']:,} lines, {found['outside_kernels']:,} of them outside of kernels")
    record.write(options.out, {"results": results})


if __name__ == "__main__":
    main()
