// Nothing: meson precompiles a header only for a target with a source.
