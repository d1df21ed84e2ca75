"""The diagnosis of features: values against estimators and closed forms, honest intervals, alarms, bad input."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ordinal_entropy as oe
from healthy_features import curve, generator
from ordinal_entropy import diagnosis, estimators, feature_files, runs
from ordinal_entropy.diagnosis import draws, measures

NAMES = list(measures.MEASURES)


def gaussian(seed, n=160, d=2):
    """Unit Gaussian features, and a target that correlates with the first by 0.8."""
    random = generator(seed)
    z = torch.randn(n, d, generator=random, dtype=torch.float64)
    return z, 0.8 * z[:, 0] + 0.6 * torch.randn(n, generator=random, dtype=torch.float64)


# values


def test_values_are_those_of_the_estimators():
    z, y = gaussian(0, n=100, d=3)
    found = oe.diagnose(z, y)
    direct = {
        "mean_nn_entropy": estimators.mean_nn_entropy(z, scale="entropy"),
        "mean_nn_entropy_unit": estimators.mean_nn_entropy(z, normalize=True, scale="entropy"),
        "diversity_entropy": estimators.diversity_entropy(z, y),
        "knn_entropy": estimators.knn_entropy(z),
        "mutual_information": estimators.mutual_information(z, y),
        "ordinality": estimators.ordinality(z, y),
        "effective_rank": estimators.effective_rank(z),
    }
    for name, value in direct.items():
        assert found[name].value == pytest.approx(float(value), rel=1e-9), name
    assert [measure.name for measure in found.measures] == NAMES
    with pytest.raises(KeyError, match="expected one of mean_nn_entropy"):
        found["entropy"]


def test_groups_of_equal_targets_give_conditional_entropy_and_tightness():
    z, y = gaussian(1, n=90, d=2)
    label = y.sign()
    found = oe.diagnose(z, label)
    given_label = estimators.conditional_entropy(z, label, bins="unique")
    assert found["conditional_entropy"].value == pytest.approx(float(given_label), rel=1e-9)
    assert found["tightness"].value == pytest.approx(float(oe.functional.tightness(z, label)), rel=1e-9)
    assert found.counts.grouped_by == "rows of equal targets"


@pytest.fixture(scope="module")
def gaussians():
    """Diagnoses of thirty samples of the same distribution."""
    return [oe.diagnose(*gaussian(seed)) for seed in range(30)]


TRUTH = {  # of unit Gaussian features in two dimensions
    "mean_nn_entropy": -float(np.euler_gamma) + 2 * math.log(2),  # d (psi(d / 2) + 2 log 2) / 2
    "knn_entropy": math.log(2 * math.pi * math.e),
    "mutual_information": -0.5 * math.log(1 - 0.8**2),
}


@pytest.mark.parametrize("name", TRUTH)
def test_intervals_cover_the_closed_form(gaussians, name):
    covered = sum(found[name].low <= TRUTH[name] <= found[name].high for found in gaussians)
    assert covered >= 26, covered  # 28.5 expected of 30


@pytest.mark.parametrize("name", ["mean_nn_entropy", "knn_entropy", "mutual_information", "ordinality", "tightness"])
def test_intervals_are_as_wide_as_samples_differ(gaussians, name):
    values = np.array([found[name].value for found in gaussians])
    half = np.mean([found[name].high - found[name].low for found in gaussians]) / 2
    assert 0.7 < half / (draws.STUDENT * values.std(ddof=1)) < 1.6


def test_samples_of_one_distribution_show_no_difference(gaussians):
    changed = [
        difference.meaning
        for before, after in zip(gaussians[::2], gaussians[1::2], strict=True)
        for difference in diagnosis._differences(before, after)
        if not difference.meaning.startswith("no difference")
    ]
    assert len(changed) <= 12, changed  # 7 expected of 15 x 9 that vary


def test_the_spread_of_subsamples_is_scaled_to_that_of_the_whole():
    values = [1.0, 4.0, 2.0, 8.0, 5.0, 7.0]  # of which the mean is known to vary by s / sqrt(n)
    for size in (2, 3, 4):
        means = [math.fsum(part) / size for part in itertools.combinations(values, size)]
        low, high = draws.interval(4.5, means, len(values), size)
        error = np.std(values, ddof=1) / math.sqrt(len(values)) * math.sqrt(len(means) / (len(means) - 1))
        assert (high - low) / 2 == pytest.approx(draws.STUDENT * error)
        assert (high + low) / 2 == pytest.approx(4.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_interval_from_numbers_that_are_none(bad):
    assert all(map(math.isnan, draws.interval(1.0, [1.0, bad], 10, 5)))
    assert all(map(math.isnan, draws.interval(bad, [1.0, 2.0], 10, 5)))
    assert all(map(math.isnan, draws.interval(1.0, [], 10, 5)))


def test_students_quantile():
    special = pytest.importorskip("scipy.special", reason="the quantile is SciPy's")
    assert special.stdtrit(draws.SUBSAMPLES - 1, 0.975) == pytest.approx(draws.STUDENT, abs=1e-4)


# two sets of features


def test_corresponding_rows_are_paired_and_the_interval_is_narrower():
    z, y = gaussian(2, n=300, d=4)
    louder = 1.02 * z
    paired = oe.diagnose_change((z, y), (louder, y))
    other = torch.randperm(300, generator=generator(0))
    apart = oe.diagnose_change((z, y), (louder[other], y[other]))
    assert paired.paired and not apart.paired
    for found in (paired, apart):
        assert found["mean_nn_entropy"].value == pytest.approx(4 * math.log(1.02), abs=1e-6)
    narrow, wide = (found["mean_nn_entropy"].high - found["mean_nn_entropy"].low for found in (paired, apart))
    assert narrow < 1e-6
    assert wide > 0.1
    assert paired["mean_nn_entropy"].meaning == "rows lie further apart"
    assert apart["mean_nn_entropy"].meaning == "no difference that 300 rows could show"


def test_a_file_against_itself():
    z, y = gaussian(3)
    found = oe.diagnose_change((z, y), (z, y))
    assert {(d.value, d.low, d.high, d.meaning) for d in found.differences} == {(0.0, 0.0, 0.0, "no difference")}


def test_both_are_measured_at_the_same_number_of_rows():
    found = oe.diagnose_change(gaussian(4, n=200), gaussian(5, n=90))
    assert found.before.counts.used == found.after.counts.used == 90
    assert found.before.counts.rows == 200
    assert "The targets differ" in found.notes[-1]


def test_a_row_that_is_bad_in_one_is_left_out_of_both():
    z, y = gaussian(6, n=64)
    after = z.clone()
    after[3, 0], after[5, 1] = math.nan, math.inf
    bad = y.clone()
    bad[5] = math.nan
    found = oe.diagnose_change((z, bad), (after, bad))
    assert found.paired
    assert found.before.counts.used == found.after.counts.used == 62
    assert str(found.before.counts).startswith(
        "64 rows of 2 features; 2 left out, with NaN or infinite numbers (1 in the targets); 62 measured"
    )
    assert (found.after.counts.left_out_features, found.after.counts.left_out_targets) == (2, 1)
    assert {difference.value for difference in found.differences} == {0.0}


def test_entropies_of_other_dimensions_are_not_compared():
    z, y = gaussian(7, n=64, d=4)
    found = oe.diagnose_change((z, y), (z[:, :2], y))
    assert found["knn_entropy"].meaning == "not to be compared: 4 dimensions before, 2 after"
    assert math.isnan(found["knn_entropy"].value) and found["knn_entropy"].shown == ""
    assert found["effective_rank"].meaning == "fewer directions are used"
    assert "not to be compared" in str(found)


# dead, duplicate, groups


@pytest.mark.parametrize(
    ("column", "dead"),
    [
        ([5, 5, 5, 5], True),
        ([0, 0, 0, 0], True),
        ([0, 1e-5, 0, 1e-5], True),  # the liveliest one moves by 1
        ([0, 1e-3, 0, 1e-3], False),
        ([5000, 5000.001, 5000, 5000.001], True),  # rounding of float32
        ([5000, 5000.1, 5000, 5000.1], False),
    ],
)
def test_dead_dimensions(column, dead):
    live = torch.tensor([0.0, 2.0, 0.0, 2.0], dtype=torch.float64)
    z = torch.stack([live, torch.tensor(column, dtype=torch.float64)], 1)
    assert measures.dead_share(z) == (0.5 if dead else 0.0)


@pytest.mark.parametrize(
    ("column", "duplicate"),
    [
        (lambda a, e: a, True),
        (lambda a, e: -3 * a + 7, True),
        (lambda a, e: a + 0.009 * e, True),  # 0.008% of the variance is its own
        (lambda a, e: a + 0.011 * e, False),
        (lambda a, e: e, False),
        (lambda a, e: 0 * a, False),  # dead is not duplicate
    ],
)
def test_duplicate_dimensions(column, duplicate):
    a = torch.tensor([1.0, 1, -1, -1])  # two columns that are orthogonal, of mean 0 and deviation 1
    e = torch.tensor([1.0, -1, 1, -1])
    z = torch.stack([a, column(a, e)], 1)
    assert measures.duplicate_share(z) == (0.5 if duplicate else 0.0)


def test_duplicates_across_blocks(monkeypatch):
    monkeypatch.setattr(measures, "_BLOCK", 12)
    z = torch.randn(50, 5, generator=generator(0))
    assert measures.duplicate_share(torch.cat([z, z[:, :2], -z[:, :1]], 1)) == 3 / 8


@given(st.integers(9, 200), st.integers(1, 4), st.integers(1, 40), st.integers(0, 99))
@settings(max_examples=40)
def test_groups_hold_near_targets_together(n, t, distinct, seed):
    y = torch.randint(distinct, (n, t), generator=generator(seed)).double()
    label, _ = measures.target_groups(y, draws.subsample_size(n))
    assert label.shape == (n,)
    for row in y.unique(dim=0):
        assert len(label[(y == row).all(1)].unique()) == 1, "equal targets are in one group"
    if t == 1 and len(y.unique()) > 10:
        assert len(label.unique()) <= 8
        bounds = sorted((float(y[label == k].min()), float(y[label == k].max())) for k in label.unique())
        assert all(first[1] < second[0] for first, second in itertools.pairwise(bounds))


def test_groups_of_many_targets_are_of_equal_size():
    assert measures.target_groups(torch.rand(400, 1, generator=generator(0)), 200)[0].bincount().tolist() == [50] * 8
    assert measures.target_groups(torch.rand(400, 3, generator=generator(0)), 200)[0].bincount().tolist() == [50] * 8
    assert measures.target_groups(torch.arange(16.0)[:, None], 8)[0].tolist() == [0] * 16  # too few to cut


# drawing rows


def blocks_of(z, y):
    return feature_files.stream(z, "features"), feature_files.stream(y, "targets")


@pytest.mark.parametrize("block", [1, 7, 100, 10_000])
def test_the_rows_drawn_do_not_depend_on_the_blocks(monkeypatch, block):
    z = np.arange(300.0).reshape(100, 3)
    y = np.arange(100)
    monkeypatch.setattr(draws, "BLOCK", block)
    steps = []
    (drawn,) = draws.draw([blocks_of(z, y)], 20, 5, steps.append)
    place = torch.randperm(100, generator=generator(5))
    expected = [int((place == k).nonzero()) for k in range(20)]  # those of the first places, in their order
    assert drawn.targets[:, 0].tolist() == expected
    assert drawn.features.tolist() == z[expected].tolist()
    assert sum(steps) == draws.number_of_blocks([blocks_of(z, y)])


def test_every_row_is_as_likely():
    y = np.arange(20)
    counts = np.zeros(20)
    for seed in range(400):
        (drawn,) = draws.draw([blocks_of(y[:, None], y)], 10, seed, lambda steps: None)
        assert len(set(drawn.targets[:, 0].tolist())) == 10, "without replacement"
        counts[drawn.targets[:, 0].long()] += 1
    assert counts.min() > 150 and counts.max() < 250  # 200 expected, deviation 10


def test_bad_rows_are_counted_and_others_take_their_place(monkeypatch):
    monkeypatch.setattr(draws, "BLOCK", 40)
    z, y = torch.ones(100, 4), torch.arange(100.0)
    z[10:30, 1] = math.nan
    z[30:35, 2] = math.inf
    y[32:40] = -math.inf
    (drawn,) = draws.draw([blocks_of(z, y)], 50, 0, lambda steps: None)
    assert drawn.counts == (100, 30, 25, 8)
    assert len(drawn.features) == 50 and drawn.features.isfinite().all()
    assert not {float(k) for k in range(10, 40)} & set(drawn.targets[:, 0].tolist())


def test_a_sum_that_overflows_is_no_bad_row():
    assert draws._not_finite(torch.tensor([[3e38, 3e38], [1.0, math.nan], [1.0, 1.0]])).tolist() == [False, True, False]
    assert draws._not_finite(torch.tensor([[1, 2]])).tolist() == [False]


def test_equal_targets():
    y = torch.tensor([1.0, math.nan, 3.0])
    assert draws.equal(feature_files.stream(y, ""), feature_files.stream(y[:, None].double(), ""))
    assert not draws.equal(feature_files.stream(y, ""), feature_files.stream(torch.tensor([1.0, 2.0, 3.0]), ""))
    assert not draws.equal(feature_files.stream(y, ""), feature_files.stream(y[:2], ""))
    assert not draws.equal(feature_files.stream(y, ""), feature_files.stream(torch.ones(3, 2), ""))


def test_sampling_is_stated():
    z, y = gaussian(8, n=500)
    found = oe.diagnose(z, y, rows=100, seed=3)
    assert str(found.counts) == (
        "500 rows of 2 features; 100 drawn without replacement (seed 3) and measured; 95% intervals from 32 subsamples "
        "of 50. Most values depend on the number of rows: they are those at 100."
    )
    again, other = oe.diagnose(z, y, rows=100, seed=3), oe.diagnose(z, y, rows=100, seed=4)
    assert again == found
    assert other["knn_entropy"].value != found["knn_entropy"].value
    assert len(found["knn_entropy"].subsamples) == 32


def test_wide_features_are_measured_on_fewer_rows():
    pair = blocks_of(np.zeros((10, 2048)), np.zeros(10))
    assert diagnosis._most_rows(None, [pair]) == 1024
    assert diagnosis._most_rows(None, [blocks_of(np.zeros((10, 512)), np.zeros(10))]) == 4096
    assert diagnosis._most_rows(77, [pair]) == 77


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    oe.diagnose(*gaussian(9, n=32))
    assert torch.equal(torch.rand(3), expected)


def test_progress_goes_from_the_first_to_the_last_step():
    seen = []
    oe.diagnose(*gaussian(9, n=32), progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1][0] == seen[-1][1]


# alarms and sentences


def collapsed():
    z, y = curve()
    noise = torch.randn(300, 16, generator=generator(1))
    dead = z.clone()
    dead[:, :9] = 3.0
    half_rows = z.clone()
    half_rows[::2] = 0
    return {
        "constant": ((torch.full((300, 16), 0.1), y), ["All rows of the features are the same"]),
        "line": ((torch.outer(y - 0.5, torch.linspace(1, 2, 16)) + 0.0005 * noise, y), ["Only 1.", "15 of 16"]),
        "one direction": ((100 + z, y), ["All rows point in nearly the same direction"]),
        "dead": ((dead, y), ["9 of 16 dimensions are dead"]),
        "duplicate": ((torch.cat([z, -2 * z], 1), y), ["16 of 32 dimensions repeat an earlier one"]),
        "same rows": ((half_rows, y), ["50% of the rows equal another row"]),
        "shuffled": ((z, y.flip(0)), ["Distances between features say nothing about the target"]),
    }


@pytest.mark.parametrize("what", list(collapsed()))
def test_collapse_raises_an_alarm(what):
    (z, y), beginnings = collapsed()[what]
    alarms = oe.diagnose(z, y).alarms
    for beginning in beginnings:
        assert any(alarm.startswith(beginning) for alarm in alarms), alarms
    if what != "line":
        assert len(alarms) == 1, alarms


def healthy():
    z, y = curve()
    random = generator(2)
    weights = torch.randn(1, 64, generator=random)
    wide = torch.relu(y[:, None] @ weights + 0.3 * torch.randn(300, 64, generator=random) + 0.2)
    return {
        "curve": (z, y),
        "after a ReLU": (wide, y),
        "in half precision": (z.half(), y),
        "small": (1e-30 * z, y),
        "large": (1e30 * z, y),
        "classes": (z, (4 * y).long()),
        "one dimension": (y[:, None] + 1, y),
        "a plane": (torch.stack([y, y.square()], 1), y),
        "two targets": (z, torch.stack([y, 1 - y.square()], 1)),
        "one target": (z, torch.zeros(300)),
        "few rows": (z[:20], y[:20]),
    }


@pytest.mark.parametrize("what", list(healthy()))
def test_healthy_features_raise_none(what):
    assert oe.diagnose(*healthy()[what]).alarms == ()


def test_two_targets_allow_one_direction():
    z, y = torch.randn(200, 4, generator=generator(0)), torch.arange(200) % 2
    z = 0.01 * z + torch.outer(y.float() - 0.5, torch.tensor([1.0, -1, 2, 1]))
    assert not any("directions" in alarm for alarm in oe.diagnose(z, y).alarms)


@pytest.mark.parametrize(
    ("value", "how"),
    [
        (0.93, "feature distances follow target distances closely"),
        (0.7, "feature distances follow target distances fairly well"),
        (0.4, "feature distances follow target distances loosely"),
        (0.2, "feature distances follow target distances barely"),
        (0.05, "feature distances do not follow target distances"),
        (-0.4, "feature distances run against target distances"),
    ],
)
def test_ordinality_in_words(value, how):
    facts = diagnosis.about(measures.Sample(*curve(50), torch.zeros(50, dtype=torch.long)), "")
    assert diagnosis.meaning("ordinality", {"ordinality": value}, facts) == how


def test_sentences_say_what_the_numbers_say():
    # two rows at right angles, thrice over, a dead and a duplicate dimension
    z = torch.tensor([[3.0, 0.0, 7.0, 0.0], [0.0, 3.0, 7.0, -6.0]]).repeat(8, 1)
    y = torch.tensor([0, 1]).repeat(8)
    found = oe.diagnose(z, y)
    assert found["dead_dimensions"].meaning == "1 of 4 is nearly constant over these rows"
    assert found["duplicate_dimensions"].meaning.startswith("2 of 4 are an earlier one again")
    assert found["effective_rank"].shown == "1 directions"
    assert found["mutual_information"].meaning == "as much as telling 2.07 equally frequent targets apart takes"
    assert found["tightness"].meaning.startswith("tight: at unit length rows are 0 from the center of their group")
    assert "100% of the rows equal another row" in found.notes[0]
    assert found["conditional_entropy"].meaning.endswith("rows of equal targets")


def test_the_room_of_gaussian_features():
    z, y = gaussian(10, n=1000, d=2)
    meaning = oe.diagnose(5 * z, y)["knn_entropy"].meaning
    like, own = (float(part.split()[0]) for part in (meaning.split("deviation ")[1], meaning.split("own is ")[1]))
    assert like == pytest.approx(5, rel=0.1) and own == pytest.approx(5, rel=0.1)


def test_it_prints_alarms_first():
    z, y = curve(64)
    text = str(oe.diagnose(torch.outer(y, torch.ones(8)), y))
    assert text.startswith("Alarm: Only 1.0 of 8 possible directions are used")
    assert text.index("H(Z), meanNN") < text.index("duplicate dimensions") < text.index("64 rows of 8 features")
    assert "Alarm, after: Only" in str(oe.diagnose_change((z, y), (torch.outer(y, torch.ones(16)), y)))


# kinds of input, and bad input


def test_kinds_of_input_give_the_same(tmp_path):
    z, y = curve(200)
    z, y = z.bfloat16().float(), (20 * y).long()
    path = tmp_path / "z.npy"
    np.save(path, z.numpy())
    expected = oe.diagnose(z, y)
    for features, targets in (
        (z.numpy(), y.numpy()),
        (z.double().requires_grad_(), y[:, None]),
        (z.bfloat16(), y.to(torch.int16)),
        (np.load(path, mmap_mode="r"), y.float().numpy()),
    ):
        assert oe.diagnose(features, targets) == expected


def test_constant_features():
    found = oe.diagnose(torch.ones(50, 3), torch.arange(50.0))
    assert found["knn_entropy"].value == -math.inf and math.isnan(found["knn_entropy"].low)
    assert found["ordinality"].value == 0 and found["dead_dimensions"].shown == "100%"
    assert found["knn_entropy"].meaning == "all rows of the features are the same"


def test_few_rows_have_no_intervals():
    found = oe.diagnose(*gaussian(11, n=15))
    assert all(math.isnan(measure.low) and measure.interval == "" for measure in found.measures)
    assert "subsamples" not in str(found.counts)
    assert (
        oe.diagnose_change(gaussian(11, n=15), gaussian(12, n=15))["ordinality"].meaning
        == "there is no interval to tell"
    )
    assert not any(math.isnan(measure.low) for measure in oe.diagnose(*gaussian(11, n=16)).measures)
    assert oe.diagnose(*gaussian(11, n=8))["knn_entropy"].value == pytest.approx(2.8, abs=2)


def test_targets_that_no_two_rows_share_leave_something_unmeasured():
    z, _ = gaussian(13, n=9)
    found = oe.diagnose(z, torch.arange(9.0))
    assert math.isnan(found["conditional_entropy"].value)
    assert found["conditional_entropy"].meaning == "not measured: too few rows have equal targets"


BAD = {
    "one row": ((torch.ones(1, 3), torch.ones(1)), "expected at least 8 rows of features, got 1"),
    "no rows": ((torch.ones(0, 3), torch.ones(0)), "expected at least 8 rows of features, got 0"),
    "lengths": ((torch.ones(20, 3), torch.ones(19)), r"expected targets for each of the 20 rows .* got \(19,\)"),
    "a vector": ((torch.ones(20), torch.ones(20)), r"expected features of shape \(n, d\) with d >= 1, got \(20,\)"),
    "maps": ((torch.ones(20, 2, 4, 4), torch.ones(20)), r"got \(20, 2, 4, 4\)"),
    "no columns": ((torch.ones(20, 0), torch.ones(20)), r"got \(20, 0\)"),
    "deep targets": ((torch.ones(20, 2), torch.ones(20, 2, 2)), r"got \(20, 2, 2\)"),
    "a number": ((torch.ones(()), torch.ones(20)), r"got \(\)"),
    "only NaN": ((torch.full((20, 2), math.nan), torch.ones(20)), "without NaN or infinite numbers, got 0 among 20"),
    "complex": ((torch.ones(20, 2), torch.ones(20) * 1j), "expected real numbers in targets"),
    "objects": ((np.array([[None]] * 20), np.ones(20)), "got Python objects, which are never unpickled"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_sentence(what):
    arguments, sentence = BAD[what]
    with pytest.raises(ValueError, match=sentence):
        oe.diagnose(*arguments)


@pytest.mark.parametrize("rows", [7, 0, 2.5])
def test_rows_that_cannot_be(rows):
    with pytest.raises(ValueError, match="expected rows as an integer of at least 8"):
        oe.diagnose(*gaussian(0), rows=rows)


def test_json(tmp_path):
    z, y = curve(40)
    change = oe.diagnose_change((z, y), (torch.ones(40, 16), y))
    runs.write_json(tmp_path / "diagnosis.json", change.to_dict())
    content = json.loads((tmp_path / "diagnosis.json").read_text())
    assert content["paired"] is True
    assert content["after"]["measures"]["knn_entropy"]["value"] is None
    measure = content["before"]["measures"]["ordinality"]
    assert measure["value"] == change.before["ordinality"].value
    assert set(measure) >= {"name", "title", "unit", "value", "low", "high", "meaning", "subsamples"}
    assert content["before"]["counts"]["used"] == 40
    assert content["differences"]["dead_dimensions"]["value"] == 1.0
