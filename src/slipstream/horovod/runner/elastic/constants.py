"""Messages that scripts look for in the errors of an elastic job."""

RESET_LIMIT_EXCEEDED_MESSAGE = (
    "the job has ended, because its members changed more often than --reset-limit allows: {}"
)
