"""Batch queues on a virtual clock: logs of real machines, a backfill scheduler that replays them, synthetic waits."""
