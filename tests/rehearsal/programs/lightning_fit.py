"""Lightning: ModelCheckpoint every few steps and on SIGTERM, fit(ckpt_path=...) of the newest."""

import os
import re
import signal
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
out = Path(os.environ["CKPT_DIR"])
halt = []


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, _):
        x, y = batch
        return (self.layer(x).squeeze(1) - y).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Stop(L.Callback):
    def on_train_batch_end(self, trainer, module, *_):
        time.sleep(0.06)
        if halt:
            trainer.save_checkpoint(out / f"model-step={trainer.global_step}.ckpt")
            os._exit(0)


L.seed_everything(3, verbose=False)
x = torch.randn(4000, 3, generator=torch.Generator().manual_seed(4))
loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=4)
keep = L.pytorch.callbacks.ModelCheckpoint(
    dirpath=out, filename="model-{step}", every_n_train_steps=6, save_top_k=-1, enable_version_counter=False
)
trainer = L.Trainer(
    max_steps=900,
    accelerator="cpu",
    callbacks=[Stop(), keep],
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
found = max(out.glob("model-step=*.ckpt"), key=lambda path: int(re.findall(r"\d+", path.name)[-1]), default=None)
signal.signal(signal.SIGTERM, lambda *_: halt.append(1))
trainer.fit(Net(), loader, ckpt_path=found)
