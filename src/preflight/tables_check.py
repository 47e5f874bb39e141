"""placeholder"""


def check(directory):
    return []
