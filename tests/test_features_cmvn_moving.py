"""Sliding and online normalisation: the formulas, chunks, silence, speakers."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.features.cmvn import stats_of
from ngsgd.features.cmvn_moving import OnlineCmvn, OnlineCmvnOptions, SlidingCmvnOptions, normalise_sliding
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from tests.reference import features as reference

RNG = np.random.default_rng(0)
FEATURES = (RNG.standard_normal((137, 3)) * [1, 10, 0.1] + [0, 50, -3] + np.arange(137)[:, None] / 20).astype(
    np.float32
)
OTHERS = (RNG.standard_normal((400, 3)) * [2, 5, 1]).astype(np.float32)
EARLIER = (RNG.standard_normal((30, 3)) + 1).astype(np.float32)
GLOBAL = stats_of(OTHERS)


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(("window", "min_window"), [(600, 100), (50, 20), (11, 1), (1, 1)])
def test_sliding_is_the_formula(window, min_window, center, norm_vars):
    if norm_vars and window == 1:
        return
    options = SlidingCmvnOptions(window, min_window, norm_vars, center)
    for frames in (137, 60, 21, 5):
        if norm_vars and min(frames, min_window) == 1 and not center:
            continue  # one frame has no deviation: see the test of constants
        expected = reference.sliding_cmvn(FEATURES[:frames], window, min_window, center, norm_vars)
        np.testing.assert_allclose(normalise_sliding(FEATURES[:frames], options), expected, atol=2e-4)


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize("window", [600, 40, 10])
@pytest.mark.parametrize("earlier", [np.zeros((0, 3), np.float32), EARLIER], ids=["new speaker", "known speaker"])
def test_online_is_the_formula_whatever_the_chunks(window, earlier, norm_vars):
    options = OnlineCmvnOptions(cmn_window=window, speaker_frames=20, global_frames=100, norm_vars=norm_vars)
    expected = reference.online_cmvn(FEATURES, window, OTHERS, 100, earlier, 20, norm_vars)
    made = []
    for size in (1, 7, 137):
        cmvn = OnlineCmvn(GLOBAL, options, stats_of(earlier) if len(earlier) else None)
        made.append(np.concatenate([cmvn.accept(FEATURES[at : at + size]) for at in range(0, 137, size)]))
        np.testing.assert_allclose(cmvn.speaker_stats, stats_of(np.concatenate([earlier, FEATURES])), rtol=1e-6)
    np.testing.assert_allclose(made[0], expected, atol=1e-4)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])


def test_frozen_statistics_stay():
    cmvn = OnlineCmvn(GLOBAL, OnlineCmvnOptions(cmn_window=30))
    before = cmvn.accept(FEATURES[:50])
    cmvn.freeze()
    after = cmvn.accept(FEATURES[49:])
    np.testing.assert_array_equal(after[0], before[-1])
    np.testing.assert_allclose(after[1:] - after[:-1], FEATURES[50:] - FEATURES[49:-1], atol=1e-4)
    at_once = OnlineCmvn(GLOBAL, OnlineCmvnOptions())
    at_once.freeze()
    np.testing.assert_allclose(at_once.accept(FEATURES), FEATURES - OTHERS.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("norm_vars", [False, True])
@pytest.mark.parametrize("features", [np.zeros((300, 3)), np.full((300, 3), -15.9424), FEATURES[:1]])
def test_silence_constants_and_one_frame_stay_small(features, norm_vars):
    features = features.astype(np.float32)
    for center in (False, True):
        made = normalise_sliding(features, SlidingCmvnOptions(50, 20, norm_vars, center))
        assert np.abs(made).max() < 1e-3
    same = stats_of(np.repeat(features[:1], 100, axis=0))
    assert np.abs(OnlineCmvn(same, OnlineCmvnOptions(norm_vars=norm_vars)).accept(features)).max() < 1e-3
    assert np.isfinite(OnlineCmvn(GLOBAL, OnlineCmvnOptions(norm_vars=norm_vars)).accept(features)).all()


def test_what_makes_no_sense_is_said():
    for options in ({"cmn_window": 0}, {"global_frames": -1}, {"norm_vars": True, "norm_means": False}):
        with pytest.raises(DataError, match="--"):
            OnlineCmvn(GLOBAL, OnlineCmvnOptions(**options))
    with pytest.raises(DataError, match="--cmn-window"):
        normalise_sliding(FEATURES, SlidingCmvnOptions(cmn_window=0))
    with pytest.raises(DataError, match="at least one frame"):
        OnlineCmvn(np.zeros((2, 4)), OnlineCmvnOptions())
    with pytest.raises(DataError, match="features of dimension 2, global statistics of 3"):
        OnlineCmvn(GLOBAL, OnlineCmvnOptions()).accept(FEATURES[:, :2])
    with pytest.raises(DataError, match="dimension 2 of the speaker, 3 global"):
        OnlineCmvn(GLOBAL, OnlineCmvnOptions(), stats_of(EARLIER[:, :2]))


def test_programs(tmp_path, run):
    bad = FEATURES.copy()
    bad[7, 1] = np.inf
    with Writer(f"ark:{tmp_path}/feats.ark", "matrix") as out:
        for key, features in {"a1": FEATURES, "a2": EARLIER, "b1": FEATURES[:50], "c1": bad}.items():
            out.write(key, features)
    with Writer(f"ark:{tmp_path}/others.ark", "matrix") as out:
        out.write("o", OTHERS)
    run("compute-cmvn-stats", "ark:others.ark", "global.cmvn")
    (tmp_path / "spk2utt").write_text("a a1 a2\nb b1\n")
    result = run("apply-cmvn-online", "--spk2utt=spk2utt", "global.cmvn", "ark:feats.ark", "ark:online.ark")
    assert "skipped c1: inf at frame 7, column 1" in result.stderr
    online = dict(SequentialReader(f"ark:{tmp_path}/online.ark", "matrix"))
    options = OnlineCmvnOptions()
    np.testing.assert_array_equal(online["b1"], OnlineCmvn(GLOBAL, options).accept(FEATURES[:50]))
    np.testing.assert_array_equal(online["a2"], OnlineCmvn(GLOBAL, options, stats_of(FEATURES)).accept(EARLIER))
    run("apply-cmvn-sliding", "--cmn-window=20", "--center", "ark:feats.ark", "ark:sliding.ark")
    sliding = dict(SequentialReader(f"ark:{tmp_path}/sliding.ark", "matrix"))
    assert list(sliding) == ["a1", "a2", "b1"]
    np.testing.assert_array_equal(
        sliding["a2"], normalise_sliding(EARLIER, SlidingCmvnOptions(cmn_window=20, center=True))
    )
