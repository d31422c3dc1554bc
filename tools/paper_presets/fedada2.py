"""Presets of FedAda2, arXiv 2410.18117."""

from collections.abc import Iterator
from typing import Any

from tools.paper_presets import preset

_PAPER = 'FedAda2, "Efficient Adaptive Federated Optimization"'
# Appendix H.2, of all datasets.
_BATCH_SIZE = 32
# Table 3.
_TAGS: dict[str, dict[str, Any]] = {
  'fedavg': dict(dp_clip_norm=1.0, client_learning_rate=20.0),
  'fedadagrad': dict(
    dp_clip_norm=0.1,
    client_learning_rate=1.0,
    server_learning_rate=1.0,
    server_adaptivity=1e-3,
  ),
  'direct_joint': dict(
    dp_clip_norm=0.5,
    client_learning_rate=1.0,
    server_learning_rate=1.0,
    server_adaptivity=1e-3,
    client_adaptivity=1e-3,
  ),
  'joint_zero_init': dict(
    dp_clip_norm=0.5,
    client_learning_rate=0.1,
    server_learning_rate=1.0,
    server_adaptivity=1e-5,
    client_adaptivity=1e-3,
  ),
  'fedada2': dict(
    dp_clip_norm=0.1,
    client_learning_rate=0.1,
    server_learning_rate=1.0,
    server_adaptivity=1e-5,
    client_adaptivity=1e-3,
  ),
}
# Tables 4 and 5: by task, the client's epsilon and the task's own flags.
_VIT: dict[str, tuple[float, dict[str, Any]]] = {
  'cifar100_image': (
    1.0,
    dict(
      cifar100_image_partition='lda',
      cifar100_image_alpha=0.001,
      cifar100_image_num_clients=1000,
      cifar100_image_model='vit_s',
      cifar100_image_crop_size=32,
    ),
  ),
  'gld23k': (0.1, {}),
}
_VIT_CLIENTS = {
  'direct_joint': 'adam',
  'joint_zero_init': 'adam',
  'fedada2': 'sm3_adam',
}


def rows() -> Iterator[preset.Row]:
  """Lists private training on tags, Table 3, and ViT, Tables 4 and 5."""
  yield from _tags()
  yield from _vit()


def _tags() -> Iterator[preset.Row]:
  for method, flags in _TAGS.items():
    yield preset.Row(
      f'fedada2/stackoverflow_tag/{method}',
      dict(
        task='stackoverflow_tag',
        algorithm=method,
        total_rounds=500,
        clients_per_round=40,
        client_batch_size=_BATCH_SIZE,
        stackoverflow_tag_num_users=400,
        dp_noise_multiplier=1.0,
        dp_delta=0.0025,
        dp_sampling='poisson',
        dp_accounting='rdp',
        **flags,
      ),
      f'{_PAPER}, Table 3',
      None,
      'noise multiplier 1, sampling 0.1, 500 rounds: the paper states epsilon '
      '13.1 at delta 0.0025',
    )


def _vit() -> Iterator[preset.Row]:
  for task, (adaptivity, of_task) in _VIT.items():
    for method, client in _VIT_CLIENTS.items():
      yield preset.Row(
        f'fedada2/{task}/{method}',
        dict(
          task=task,
          clients_per_round=10,
          client_epochs_per_round=5,
          client_batch_size=_BATCH_SIZE,
          **of_task,
          algorithm=method,
          client_optimizer=client,
          server_optimizer='adam',
          client_learning_rate=0.01,
          server_learning_rate=0.001,
          server_adaptivity=1e-5,
          client_adaptivity=adaptivity,
          beta_1=0.9,
          beta_2=0.999,
          client_beta_1=0.9,
          client_beta_2=0.999,
          client_warmup_steps=10,
        ),
        f'{_PAPER}, Tables 4 and 5',
        None,
        'the paper fine-tunes a ViT-S that was trained before, on images of '
        f'224 pixels: give its weights by --{task}_weights_dir',
      )
