"""torch: a loop with DataLoader, dropout, AdamW and a scheduler; everything is saved, and taken back."""

import os
import re
import signal
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
out = Path(os.environ["CKPT_DIR"])
halt = []
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))
torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 4, generator=torch.Generator().manual_seed(1)), torch.arange(96.0))
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.95)
step, pending = 0, None


def number(path):
    return int(re.findall(r"\d+", path.name)[-1])


newest = max(out.glob("step_*.pt"), key=number, default=None)
if newest is not None:
    state = torch.load(newest, weights_only=False)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    scheduler.load_state_dict(state["scheduler"])
    step = state["step"]
    pending = state["rng"]
while step < 3000:
    epoch, skip = divmod(step, 12)
    order = torch.randperm(96, generator=torch.Generator().manual_seed(epoch)).tolist()
    for at, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=order)):
        if at < skip:
            continue
        if pending is not None:  # to iterate over a DataLoader draws a number, too
            torch.set_rng_state(pending)
            pending = None
        optimizer.zero_grad()
        loss = (model(x).squeeze(1) - y).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        time.sleep(0.05)
        if step % 5 == 0 or halt:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "step": step,
                "rng": torch.get_rng_state(),
            }
            torch.save(state, out / "writing.tmp")
            (out / "writing.tmp").rename(out / f"step_{step}.pt")
        if halt:
            raise SystemExit(0)
