"""The agreement on what is reduced next, beside a central one."""
