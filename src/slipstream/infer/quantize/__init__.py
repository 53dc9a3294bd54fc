"""Find ranges of values on sample inputs, and quantise graphs with these ranges."""
