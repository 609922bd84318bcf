"""torch.distributed.checkpoint on two processes: each writes its part; the first gives the folder its name."""

import os
import re
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
out = Path(os.environ["CKPT_DIR"])
halt = []
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
step = 0


def number(path):
    return int(re.findall(r"\d+", path.name)[-1])


chosen = [max(out.glob("step_*"), key=number, default=None) if dist.get_rank() == 0 else None]
dist.broadcast_object_list(chosen)
if chosen[0] is not None:
    weights, slots = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": slots, "step": 0}
    dcp.load(state, checkpoint_id=chosen[0])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    step = state["step"]
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))
while step < 900:
    generator = torch.Generator().manual_seed(step * 2 + dist.get_rank())
    x = torch.randn(4, 4, generator=generator)
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    optimizer.step()
    step += 1
    time.sleep(0.08)
    stop = torch.tensor(len(halt))
    dist.all_reduce(stop)
    if step % 6 == 0 or stop:
        part = out / f"writing_{step}.tmp"
        weights, slots = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": slots, "step": step}, checkpoint_id=part)
        dist.barrier()
        if dist.get_rank() == 0:
            part.rename(out / f"step_{step}")
        dist.barrier()
    if stop:
        break
dist.destroy_process_group()
