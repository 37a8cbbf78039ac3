"""Masked-language training of an encoder on the texts that it will rank, before it sees a click.

Reference: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
NAACL 2019, section 3.1.

    of the tokens that are not special 15 % are chosen: 80 % of them become [MASK], 10 % a random one
    minimise  - mean log P(token | text) over the chosen tokens

Differences from the paper: no next-sentence task; query and document are read together, as in ranking; the
step size rises over a tenth of the steps and falls linearly.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unskew.errors import ConfigError
from unskew.learning.rankers.text_rankers import TextEncoder, transformers
from unskew.tables.lists.inputs import Tokens

CHOSEN = 0.15
IGNORED = -100  # the label of tokens that were not chosen, as torch's cross-entropy has it

Told = Callable[[int, float, float], None]
"""Takes the step, its loss and the texts per second."""


def masked(ids: Tensor, special: Tensor, mask: int, words: int, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    """Ids [n, L] with some of them hidden, and labels: the id where it was chosen, -100 elsewhere."""
    chosen = (torch.rand(ids.shape, generator=draws) < CHOSEN) & ~special
    how = torch.rand(ids.shape, generator=draws)
    hidden = ids.where(~(chosen & (how < 0.8)), mask)
    random = torch.randint(words, ids.shape, generator=draws)
    hidden = torch.where(chosen & (how >= 0.8) & (how < 0.9), random, hidden)
    return hidden, ids.where(chosen, IGNORED)


def pretrain(
    encoder: TextEncoder,
    texts: Tokens,
    *,
    steps: int,
    rate: float = 5e-5,
    batch: int,
    seed: int,
    told: Told | None = None,
) -> list[float]:
    """Train the encoder in place, `rate` the largest step size; the loss of every step."""
    losses = list[float]()
    draws, device = torch.Generator().manual_seed(seed), texts.codes.device
    model = _with_words(encoder).to(device).train()
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (steps / 10 + 1), (steps - step) / steps)
    )
    began = time.perf_counter()
    for step in range(steps):
        rows = torch.randint(len(texts.starts) - 1, (batch,), generator=draws)
        loss = _loss(model, encoder, texts.gather(rows.to(device))[:, texts.features.shape[1] :].long(), draws)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if told is not None:
            told(step + 1, losses[-1], (step + 1) * batch / (time.perf_counter() - began))
    return losses


def _loss(model: nn.Module, encoder: TextEncoder, codes: Tensor, draws: torch.Generator) -> Tensor:
    """Cross-entropy of the hidden tokens; 0 where none was chosen."""
    given, tokenizer = encoder.inputs(codes), encoder.tokenizer
    ids = given["input_ids"]
    special = (codes < 0) | torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device=ids.device))
    hidden, labels = masked(ids.cpu(), special.cpu(), tokenizer.mask_token_id, len(tokenizer), draws)
    logits: Tensor = model(**given | {"input_ids": hidden.to(ids.device)}).logits
    total = nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten().to(ids.device), ignore_index=IGNORED, reduction="sum"
    )
    return total / (labels != IGNORED).sum().clamp(min=1)


def _with_words(encoder: TextEncoder) -> nn.Module:
    """The encoder itself with a head that names tokens: the model's own where it has one."""
    package, config = transformers(), encoder.config
    if encoder.tokenizer.mask_token_id is None:
        raise ConfigError(f"the tokenizer of {config.model!r} has no mask token")
    try:
        kind = package.AutoModelForMaskedLM
        made: nn.Module = (
            kind.from_config(encoder.model.config) if config.scratch else kind.from_pretrained(config.model)
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{config.model!r} cannot name masked tokens ({error})") from error
    setattr(made, str(made.base_model_prefix), encoder.model)
    made.tie_weights()  # type: ignore[operator]
    return made
