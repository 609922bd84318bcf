"""transformers: Trainer with a tiny GPT-2; the newest whole checkpoint is taken, and SIGTERM asks for one more."""

import os
import re
import signal
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

torch.set_num_threads(1)
out = Path(os.environ["CKPT_DIR"])
halt = []
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))
set_seed(0)


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.1)
        if halt:
            control.should_save = control.should_training_stop = True
        return control


rows = torch.randint(0, 50, (64, 8), generator=torch.Generator().manual_seed(2))
data = [{"input_ids": row, "labels": row} for row in rows]
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
)
arguments = TrainingArguments(
    output_dir=str(out),
    max_steps=600,
    per_device_train_batch_size=4,
    save_steps=8,
    save_total_limit=3,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)


def whole(folder):
    return (folder / "trainer_state.json").exists()


found = [folder for folder in out.glob("checkpoint-*") if whole(folder)]
newest = max(found, key=lambda folder: int(re.findall(r"\d+", folder.name)[-1]), default=None)
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Stop()])
trainer.train(resume_from_checkpoint=str(newest) if newest else None)
