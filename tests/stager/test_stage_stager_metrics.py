"""What the janitor makes of the metrics files that stagers leave."""

import os

from shards.cache import CacheLayout
from shards.progress import StageProgress, StageState
from stager.janitor import JanitorState
from stager.metrics import render_metrics
from stager.stage_metrics import StageCounters, stage_metrics
from stager.stager_metrics import StagerMetrics, parse_metrics


def metrics_of(retries=0, state=StageState.STAGED, dataset="blake3:abc"):
    progress = StageProgress(
        holder="x", state=state, source="/mnt/x", selection="all", dataset_id=dataset, path="/cache/datasets/abc"
    )
    return stage_metrics(progress, StageCounters(retries=retries, errors={"RemoteError": retries}))


def leave(cache, name, mtime, **values):
    path = cache / "metrics" / f"{name}.prom"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(render_metrics(metrics_of(**values)))
    os.utime(path, (mtime, mtime))
    return path


def lines(metrics):
    return set(render_metrics(metrics).decode().splitlines())


def retries(number, dataset="abc"):
    return f'shardferry_stage_retries_total{{dataset="{dataset}"}} {number}'


def test_what_a_stager_writes_is_read_back():
    data = render_metrics(metrics_of(retries=3))
    assert render_metrics(parse_metrics(data)) == data


def test_counters_are_sums_that_never_fall_and_gauges_are_the_last_ones(cache):
    collector = StagerMetrics(CacheLayout(str(cache)))
    assert collector.collect() == ()
    first = leave(cache, "first", 2000, retries=3)
    leave(cache, "second", 1000, retries=4, state=StageState.FAILED)
    leave(cache, "other", 1000, retries=1, dataset="blake3:fed")
    for _ in range(2):  # looking twice counts nothing twice
        said = lines(collector.collect())
        assert {retries(7), retries(1, "fed")} <= said
        assert 'shardferry_stage_state{dataset="abc",state="Staged"} 1' in said
        assert 'shardferry_stage_state{dataset="abc",state="Failed"} 0' in said
    leave(cache, "first", 3000, retries=5)
    assert retries(9) in lines(collector.collect())
    leave(cache, "first", 4000, retries=2)  # another run of the same holder
    assert retries(11) in lines(collector.collect())
    first.unlink()
    assert retries(11) in lines(collector.collect())


def test_what_is_no_metrics_file_of_a_stager_is_left_out(cache):
    good = leave(cache, "good", 1000, retries=1)
    (cache / "metrics" / "foreign.prom").write_bytes(
        b"# TYPE up gauge\nup 1\n# TYPE shardferry_stage_x gauge\nshardferry_stage_x nan\n\xff\nshardferry_stage_y 1\n"
    )
    (cache / "metrics" / "big.prom").write_bytes(b"\n" * 100_000)
    (cache / "metrics" / "directory.prom").mkdir()
    os.mkfifo(cache / "metrics" / "fifo.prom")
    (cache / "metrics" / "link.prom").symlink_to(good)
    assert lines(StagerMetrics(CacheLayout(str(cache))).collect()) == lines(metrics_of(retries=1))


def test_the_janitor_shows_them_beside_its_own(cache, dataset, stage_here):
    stage_here(dataset, cache)
    state = JanitorState(stagers=StagerMetrics(CacheLayout(str(cache))).collect())
    assert "shardferry_stage_last_success_timestamp_seconds" in state.render().decode()
    assert state.render().decode().count("# TYPE shardferry_stage_bytes_total counter\n") == 1
