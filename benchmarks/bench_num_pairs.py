"""Random pairs against the pairs of random rows: how much value and gradient vary at the same number of pairs.

    python benchmarks/bench_num_pairs.py               # a minute; writes bench_num_pairs.json

k rows drawn without replacement have k (k - 1) / 2 pairs, many of which share a row. As many pairs drawn at random from
all pairs of the m = 200 rows share few. Both are unbiased (raw weights, distinct targets).
"""

from pathlib import Path

import torch

from ordinal_entropy.functional import diversity

import record

ROWS, DIMENSIONS = 200, 8


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(ROWS, generator=generator, dtype=torch.float64)
    directions = torch.randn(2, DIMENSIONS, generator=generator, dtype=torch.float64)
    noise = torch.randn(ROWS, DIMENSIONS, generator=generator, dtype=torch.float64)
    features = torch.stack([targets, 1 - targets], 1) @ directions + 0.5 * noise

    def variance(draws: int, **option: int) -> tuple[float, float]:
        values, gradients = [], []
        for _ in range(draws):
            x = features.clone().requires_grad_()
            value = diversity(x, targets, rescale="none", generator=generator, **option)
            values.append(value.detach())
            gradients.append(torch.autograd.grad(value, x)[0])
        return torch.stack(values).var().item(), torch.stack(gradients).var(0).sum().item()

    results = []
    for k in (2, 4, 8, 16, 32, 64, 100, 150, 180, 190, 195, 198):
        draws = 1000 if k <= 64 else 300
        rows, pairs = variance(draws, max_samples=k), variance(draws, num_pairs=k * (k - 1) // 2)
        same = variance(draws, num_pairs=k)
        results.append(
            {
                "k": k,
                "pairs": k * (k - 1) // 2,
                "draws": draws,
                "variance_of_rows_over_pairs_value": round(rows[0] / pairs[0], 2),
                "variance_of_rows_over_pairs_gradient": round(rows[1] / pairs[1], 2),
                "variance_of_k_rows_over_k_pairs_value": round(rows[0] / same[0], 2),
                "variance_of_k_rows_over_k_pairs_gradient": round(rows[1] / same[1], 2),
            }
        )
        print(results[-1], flush=True)
    record.write(Path(__file__).with_suffix(".json"), {"m": ROWS, "d": DIMENSIONS, "results": results})


if __name__ == "__main__":
    main()
