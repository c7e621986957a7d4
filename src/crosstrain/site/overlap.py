"""What a site keeps in mind while it trains ahead (`round.overlap`): the finished phase that is on its way, and the generation
that comes of it.
"""

from __future__ import annotations

from crosstrain.site.courier import Answered, Arrived, Courier
from crosstrain.site.machine import Machine, Parts
from crosstrain.site.spool import Pending
from crosstrain.wire import messages


class Overlap:
    """The errand of the last phase.

    Attributes:
        ready: the trainer holds the weights of the finished phase, untouched, and a copy of them is in the spool.
        answered: whether the coordinator judged the finished phase.
        refused: why it did not count; empty: it does, or may still.
        arrived: the next generation, once it is on the disk.
        took_s: seconds from the last step to the answer, once it is there.
    """

    def __init__(self, courier: Courier, parts: Parts, machine: Machine) -> None:
        self._courier = courier
        self._p = parts
        self._machine = machine
        self._began_at = 0.0
        self._wish = messages.Ahead(token=0)
        self.ready = False
        self.answered = True
        self.refused = ""
        self.arrived: Arrived | None = None
        self.took_s: float | None = None

    @property
    def busy(self) -> bool:
        """Whether the errand goes on."""
        return self._courier.under_way

    @property
    def wish(self) -> messages.Ahead:
        """What is asked for to train ahead."""
        return self._wish

    def begin(self, pending: Pending, global_step: int, trained_at: float) -> None:
        """Sends finished work on its way.

        Args:
            global_step: inner steps behind the weights held.
            trained_at: when its last step was taken.
        """
        self._wish = messages.Ahead(token=pending.token, global_step=global_step)
        self._began_at, self.took_s = trained_at, None
        self.ready, self.answered, self.refused, self.arrived = True, False, "", None
        self._courier.carry(self._machine.session, pending)

    def look(self) -> None:
        """Takes in what the courier found out.

        Raises:
            CrosstrainError: the errand failed.
        """
        while (news := self._courier.news(self._p.api.deadline_s)) is not None:
            match news:
                case Answered(fate, sentence):
                    self._machine.say(sentence)
                    self._p.spool.forget(fate)
                    self.answered = True
                    self.took_s = self._p.clock.perf() - self._began_at
                    self.refused = "" if fate == "accepted" else sentence
                case Arrived():
                    self._machine.say(f"generation {news.generation} is here")
                    self._p.spool.drop_other_bases(news.weights)
                    self.arrived = news

    def give_up(self) -> None:
        """The phase ahead is over or not to be."""
        self.ready = False

    def leave(self) -> None:
        """The next generation is not waited for any more."""
        self._courier.cancel()
