"""Entropies of saved features: what the estimators say of the file."""

import math

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("safetensors", reason="features are saved in its files")

from safetensors.torch import save_file

from ordinal_entropy import estimators
from ordinal_entropy.training.saved_features import SCORES, entropies, feature_scores, saved_entropies, saved_scores


def kept(folder, features, targets):
    (folder / "features").mkdir()
    content = {"features": features.half(), "targets": targets.float(), "predictions": targets.float() + 1}
    save_file(content, folder / "features" / "test-0007.safetensors")


def sample(n, d=16):
    generator = torch.Generator().manual_seed(0)
    ages = torch.randint(1, 90, (n, 1), generator=generator).float()
    return torch.cat([ages / 30, torch.randn(n, d - 1, generator=generator)], dim=1), ages


def test_the_scores_of_a_file_are_those_of_the_estimators(tmp_path):
    features, ages = sample(120)
    kept(tmp_path, features, ages)
    sphere = F.normalize(features.half().double(), dim=1)
    found = saved_scores(tmp_path, "test", 7)
    assert found == pytest.approx(
        {
            "entropy": float(estimators.mean_nn_entropy(features.half().double(), normalize=True)),
            "conditional_entropy": float(estimators.conditional_entropy(sphere, ages, bins=4)),
            "diversity": float(estimators.diversity_entropy(sphere, ages)),
            "ordinality": float(estimators.ordinality(sphere, ages)),
            "effective_rank": float(estimators.effective_rank(sphere)),
        }
    )
    assert set(found) == set(SCORES)
    assert saved_scores(tmp_path, "train", 7) == saved_scores(tmp_path, "test", 8) == {}


def test_scale_does_not_matter_and_looser_features_have_more_of_both_entropies():
    features, ages = sample(120)
    assert feature_scores(1000 * features, ages) == pytest.approx(feature_scores(features, ages), rel=1e-4)
    tight = feature_scores(torch.cat([features[:, :1] + 2, 0.01 * features[:, 1:]], dim=1), ages)
    loose = feature_scores(features, ages)
    assert all(tight[name] < loose[name] for name in ("entropy", "conditional_entropy", "effective_rank"))


def test_few_rows_and_lost_features():
    features, ages = sample(50)
    assert feature_scores(features[:49], ages[:49]) == {}
    features[3, 2] = math.nan
    assert all(math.isnan(score) for score in feature_scores(features, ages).values())
    same = feature_scores(torch.ones(50, 4), ages)
    assert same["entropy"] == -math.inf and same["effective_rank"] == 0


def test_the_entropies_of_a_file_are_means_over_pairs(tmp_path):
    features, ages = sample(60)
    kept(tmp_path, features, ages)
    z, n, d = features.half().double(), 60, 16
    of_pairs = {"E1": 0.0, "E2": 0.0}
    for i in range(n):
        for j in range(n):
            if i != j:
                of_pairs["E1"] += float((z[i] - z[j]).norm().log())
                of_pairs["E2"] += float((z[i] / z[i].norm() - z[j] / z[j].norm()).norm().log())
    found = saved_entropies(tmp_path, "test", 7)
    assert found == pytest.approx(
        {
            **{name: d * total / (n * (n - 1)) for name, total in of_pairs.items()},
            "E3": float(estimators.diversity_entropy(z, ages)),
        }
    )
    with pytest.raises(ValueError, match=r"expected saved features in .*train-0007\.safetensors, got none"):
        saved_entropies(tmp_path, "train", 7)


def test_entropies_at_the_edges():
    features, ages = sample(20)
    repeated = entropies(torch.cat([features, features[:3]]), torch.cat([ages, ages[:3]]))
    assert all(map(math.isfinite, repeated.values())) and repeated["E1"] < entropies(features, ages)["E1"]
    assert all(map(math.isnan, entropies(features[:1], ages[:1]).values()))
    assert entropies(torch.ones(5, 3), ages[:5]) == {"E1": -math.inf, "E2": -math.inf, "E3": 0.0}
    features[2, 1] = math.inf
    assert all(map(math.isnan, entropies(features, ages).values()))
