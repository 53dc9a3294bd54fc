"""The program `python -m slipstream.fastgpu`."""

from slipstream.fastgpu.scripts import main

if __name__ == "__main__":
    main()
