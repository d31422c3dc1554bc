"""What may stand where a file should, and how each is made."""

import os
import socket


def _make_fifo(path):
  os.mkfifo(path)


def _make_socket(path):
  listening = socket.socket(socket.AF_UNIX)
  before = os.getcwd()
  os.chdir(path.parent)  # The path of a socket may be at most 108 bytes long.
  try:
    listening.bind(path.name)
  finally:
    os.chdir(before)


def _make_device(path):
  path.symlink_to('/dev/zero')


def _make_folder(path):
  path.mkdir()


KINDS = {
  'a FIFO': _make_fifo,
  'a socket': _make_socket,
  'a device': _make_device,
  'a folder': _make_folder,
}
