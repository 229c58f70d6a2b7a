"""Command line of the style rules: report, list and lower."""

import argparse
import json

from style_rules import COMMENT_FLOOR, COMMENTED, PENDING, comment_density, counts, violations


def report() -> None:
    """Print the count of each rule by package, and the density of comments."""
    for rule, packages in counts().items():
        print(f"{rule}: {sum(packages.values())}")
        for package, count in sorted(packages.items(), key=lambda item: -item[1]):
            print(f"  {count:5d}  {package}")
    print("comment lines per 100 code lines:")
    for part, folders in COMMENTED.items():
        print(f"  {comment_density(folders):5.1f}  {part}")


def lower() -> None:
    """Write the present counts where they are lower than the allowed ones."""
    allowed = json.loads(PENDING.read_text(encoding="utf-8")) if PENDING.exists() else {}
    densities = allowed.get("comments", {})
    result: dict[str, dict[str, float]] = {
        rule: {p: min(n, allowed.get(rule, {p: n}).get(p, 0)) for p, n in packages.items()}
        for rule, packages in counts().items()
    }
    result = {rule: {p: n for p, n in kept.items() if n} for rule, kept in result.items()}
    result["comments"] = {
        part: max(density, densities.get(part, 0.0))
        for part, folders in COMMENTED.items()
        if (density := int(comment_density(folders) * 10) / 10) < COMMENT_FLOOR
    }
    PENDING.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Parse the options and run what they ask for."""
    parser = argparse.ArgumentParser(prog="scripts/style", description=__doc__)
    parser.add_argument("--report", action="store_true", help="counts by rule and package")
    parser.add_argument(
        "--list", metavar="TEXT", help="places whose rule, path or text contains TEXT"
    )
    parser.add_argument(
        "--lower", action="store_true", help="lower the allowed counts to the present ones"
    )
    options = parser.parse_args()
    if options.list is not None:
        for violation in violations():
            if options.list in str(violation):
                print(violation)
    if options.lower:
        lower()
    if options.report or not (options.lower or options.list is not None):
        report()


if __name__ == "__main__":
    main()
