"""Flight records: what each rank knew at a fault, and their merging into one account.

Ranks write records through `slipstream.comm`, the launcher writes `launcher.json`, and
`slipstream explain` reads both.
"""
