"""Adds up JUnit files and prints one closing line: `N passed, N failed, N skipped`.
Exit status 1 if anything failed or nothing ran."""
import sys
import xml.etree.ElementTree as ElementTree

passed = failed = skipped = 0
for name in sys.argv[1:]:
    for case in ElementTree.parse(name).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            print(f"FAILED {case.get('classname') or ''} {case.get('name')}")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
