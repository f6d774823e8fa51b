"""The option that writes golden files anew."""


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="write what comes out into the cases of tests/cases")
