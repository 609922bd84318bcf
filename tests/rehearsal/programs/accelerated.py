"""accelerate: save_state into a folder that gets its name when it is whole, load_state of the newest."""

import os
import shutil
import signal
import time
from pathlib import Path

import torch
from accelerate import Accelerator

torch.set_num_threads(1)
out = Path(os.environ["CKPT_DIR"])
halt = []
torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
done = 0
found = sorted(out.glob("step_*"), key=lambda path: int(path.name.split("_")[1]))
if found:
    accelerator.load_state(str(found[-1]))
    done = int(found[-1].name.split("_")[1])
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))
while done < 1000:
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    accelerator.backward((model(x) - x.sum(1, keepdim=True)).square().mean())
    optimizer.step()
    scheduler.step()
    done += 1
    time.sleep(0.05)
    if done % 6 == 0 or halt:
        part = out / "writing.tmp"
        shutil.rmtree(part, ignore_errors=True)
        accelerator.save_state(str(part))
        part.rename(out / f"step_{done}")
        for old in sorted(out.glob("step_*"), key=lambda path: int(path.name.split("_")[1]))[:-3]:
            shutil.rmtree(old)
    if halt:
        break
