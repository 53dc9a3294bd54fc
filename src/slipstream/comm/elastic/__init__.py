"""Training that goes on when ranks are lost, leave, or join.

    from slipstream.comm import elastic

    state = elastic.ObjectState(weights=weights, step=0)

    @elastic.run
    def train(state):
        while state.step < 1000:
            ...                     # collectives of slipstream.comm, or of a framework
            state.step += 1
            state.commit()

    train(state)

If a rank is lost, the others form a new epoch over the connections that they have, go back to the
last commit, and call the function again, in the same processes. New ranks join after a commit, and
get the state from rank 0. `slipstream run --min 2 --max 8` starts such a job and replaces processes
that end.
"""

from slipstream.comm.elastic.formation import LeftError as LeftError
from slipstream.comm.elastic.formation import OverError as OverError
from slipstream.comm.elastic.loop import StateLostError as StateLostError
from slipstream.comm.elastic.loop import run as run
from slipstream.comm.elastic.session import MembershipChanged as MembershipChanged
from slipstream.comm.elastic.session import session as session
from slipstream.comm.elastic.state import ElasticState as ElasticState
from slipstream.comm.elastic.state import ObjectState as ObjectState
