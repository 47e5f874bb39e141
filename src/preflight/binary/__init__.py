"""What the binaries themselves say: ELF files and the loader's search. Nothing is loaded or run."""
