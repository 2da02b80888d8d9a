"""What happens to one of three brokers while writers write. Each fault lasts for a while and ends.

What it leaves behind (a dead broker, a link that is down) `Cluster.heal` undoes.
"""

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tests.integration.kafka_cluster import SESSION_S, Cluster, Node
from tests.integration.waiting import until

Fault = Callable[[Cluster, Node, Random], None]

NETWORK: Final = "network"
DISK: Final = "disk"


def killed(cluster: Cluster, node: Node, dice: Random) -> None:
    """Its machine is gone; another broker leads once the controller gives it up."""
    node.kill()
    _wait(dice)


def two_killed(cluster: Cluster, node: Node, dice: Random) -> None:
    """It and another are gone: the last one takes no record and elects nobody."""
    other = dice.choice(cluster.others(node))
    node.kill()
    other.kill()
    _wait(dice)


def suspended(cluster: Cluster, node: Node, dice: Random) -> None:
    """It hangs for longer than its session, and wakes up believing that it leads."""
    node.suspend()
    _wait(dice)
    node.resume()


def restarted_in_turn(cluster: Cluster, node: Node, dice: Random) -> None:
    """All are restarted in order, each when the one before it has every record again."""
    for each in dice.sample(cluster.nodes, len(cluster.nodes)):
        each.stop()
        each.launch()
        cluster.wait_in_sync()


def cut_off_from_the_others(cluster: Cluster, node: Node, dice: Random) -> None:
    """Clients reach it and the other brokers do not: it may acknowledge nothing."""
    assert cluster.network is not None
    for other in cluster.others(node):
        cluster.network.cut(node.number, other.number)
    _wait(dice)


def cut_off_from_one(cluster: Cluster, node: Node, dice: Random) -> None:
    """It and one other do not reach each other; the third reaches both."""
    assert cluster.network is not None
    cluster.network.cut(node.number, dice.choice(cluster.others(node)).number)
    _wait(dice)


def unplugged(cluster: Cluster, node: Node, dice: Random) -> None:
    """Nobody reaches it, and no connection is closed."""
    assert cluster.network is not None
    cluster.network.unplug(node.number)
    _wait(dice)


def disk_filled(cluster: Cluster, node: Node, dice: Random) -> None:
    """It has no byte left to write to, so it ends."""
    node.fill_disk()
    until(lambda: not node.child.is_alive(), "the end of the broker whose disk is full")
    _wait(dice)


FAULTS: Final[Mapping[Fault, str]] = {
    killed: "",
    two_killed: "",
    suspended: "",
    restarted_in_turn: "",
    cut_off_from_the_others: NETWORK,
    cut_off_from_one: NETWORK,
    unplugged: NETWORK,
    disk_filled: DISK,
}
"""Every fault, and what the machine must allow for it."""


def _wait(dice: Random) -> None:
    """Let the fault last: always longer than a session, at times longer than a client's request."""
    time.sleep(SESSION_S * dice.uniform(1.5, 4.0))
