"""Roots built file by file, for layouts of systems that are not at hand."""

from preflight.probes.python_env import read_environment
from preflight.roots import Root


class Image:
    """A root built file by file."""

    def __init__(self, folder):
        self.folder = folder
        self.root = Root(str(folder))

    def write(self, path, text="", mode=0o644):
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return self

    def program(self, path, text="\x7fELF"):
        return self.write(path, text, 0o755)

    def link(self, path, target):
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)
        return self

    def folders(self, *paths):
        for path in paths:
            (self.folder / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        return self

    def python(self, prefix, tag, lib="lib", site_text="# site"):
        """An interpreter at PREFIX/bin, with the links that installers make."""
        self.program(f"{prefix}/bin/python{tag}")
        self.link(f"{prefix}/bin/python3", f"python{tag}")
        self.write(f"{prefix}/{lib}/python{tag}/os.py")
        self.write(f"{prefix}/{lib}/python{tag}/site.py", site_text)
        return self.folders(f"{prefix}/{lib}/python{tag}/site-packages")

    def dist(self, site, name, version, metadata=None):
        folder = f"{site}/{name}-{version}.dist-info"
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        return self.write(folder + "/METADATA", metadata or text)

    def read(self, interpreter, **env):
        """What `read_environment` makes of an interpreter in it."""
        return read_environment(self.root, interpreter, env)
