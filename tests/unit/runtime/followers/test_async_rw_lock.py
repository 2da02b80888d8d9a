"""One exclusive holder at a time excludes all others, and is not starved by shared holders."""

import asyncio

from tidegate_runtime.followers.commit_follower import AsyncRwLock


async def nothing_else_happens() -> None:
    """Let every runnable task run."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_many_share_and_one_who_wants_to_be_alone_waits_and_then_goes_first() -> None:
    async def scene() -> list[str]:
        turns, done = AsyncRwLock(), list[str]()
        release = asyncio.Event()

        async def share(name: str) -> None:
            async with turns.shared():
                done.append(f"{name} begins")
                await release.wait()
            done.append(f"{name} ends")

        async def alone() -> None:
            async with turns.alone():
                done.append("alone")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(share("a"))
            tasks.create_task(share("b"))
            await nothing_else_happens()
            tasks.create_task(alone())
            await nothing_else_happens()
            tasks.create_task(share("late"))
            await nothing_else_happens()
            assert done == ["a begins", "b begins"]
            release.set()
        return done

    done = asyncio.run(scene())
    assert done.index("alone") < done.index("late begins")


def test_behind_one_who_waits_long_to_be_alone_others_wait_no_longer_and_it_goes_first() -> None:
    async def scene() -> list[str]:
        turns, done = AsyncRwLock(patience_s=0), list[str]()
        release = {name: asyncio.Event() for name in ("long", "early", "late")}

        async def share(name: str) -> None:
            async with turns.shared():
                done.append(f"{name} begins")
                await release[name].wait()

        async def alone() -> None:
            async with turns.alone():
                done.append("alone")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(share("long"))
            await nothing_else_happens()
            tasks.create_task(alone())
            await nothing_else_happens()
            tasks.create_task(share("early"))
            await nothing_else_happens()
            assert done == ["long begins", "early begins"]
            release["long"].set()
            await nothing_else_happens()
            tasks.create_task(share("late"))
            await nothing_else_happens()
            assert done == ["long begins", "early begins"], "the long turn has ended"
            for item in release.values():
                item.set()
        return done

    assert asyncio.run(scene())[2:] == ["alone", "late begins"]


def test_idle_waits_for_all_who_act() -> None:
    async def scene() -> None:
        turns, release = AsyncRwLock(), asyncio.Event()

        async def share() -> None:
            async with turns.shared():
                await release.wait()

        sharing = asyncio.create_task(share())
        await nothing_else_happens()
        idle = asyncio.create_task(turns.idle())
        await nothing_else_happens()
        assert not idle.done()
        release.set()
        await idle
        await sharing

    asyncio.run(scene())


def test_one_who_gives_up_waiting_to_be_alone_blocks_nobody() -> None:
    async def scene() -> None:
        turns = AsyncRwLock()

        async def alone() -> None:
            async with turns.alone():
                raise AssertionError("never its turn")

        async with turns.shared():
            waiting = asyncio.create_task(alone())
            await nothing_else_happens()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            async with turns.shared():
                pass

    asyncio.run(scene())
