"""Classifies images with VGG16 again and again, and logs what its layers take.

Weights are random, images have the shape of CIFAR's. In each phase of a run some
layers have more to do: images come in other numbers, and parts of the network run
several times on the same ones, as ensembles of classifiers and pyramids of features
do. Within a phase the mix is steady: the part that is furthest behind comes next.
"""
import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional

SECOND = 1_000_000_000
LATE = 5 * SECOND  # a part may take seconds where much else runs

# What a phase does: images at once, and the part of the time of each part of the network.
PHASES = [
    (1, {"convolve": 0.65, "classify": 0.25, "pyramid": 0.10}),
    (2, {"convolve": 0.35, "classify": 0.55, "pyramid": 0.10}),
    (1, {"convolve": 0.35, "classify": 0.20, "pyramid": 0.45}),
    (2, {"convolve": 0.55, "classify": 0.15, "pyramid": 0.30}),
]

EDGE = 32  # of images, in pixels: CIFAR's

# The widths of VGG16's convolutions; M halves edges by taking the largest of four.
LAYERS = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


class VGG16(nn.Module):
    """The network, with the classifier that is common for images of 32 by 32."""

    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width in LAYERS:
            if width == "M":
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))

    def convolve(self, images):
        return torch.flatten(self.features(images), 1)

    def classify(self, features):
        return self.classifier(features)

    def pyramid(self, level):
        """Makes maps of features smaller and smaller."""
        while level.shape[-1] > 4:  # below that calls take no longer than the clocks
            level = functional.max_pool2d(functional.relu(level), 2)
        return level


class Log:
    """CPU time of each function, and the work that was done, by window."""

    NAMES = ["forward", "_conv_forward", "_max_pool2d", "relu"]

    def __init__(self, window):
        self.window = window
        self.first = time.time_ns()
        self.open = {}

    def _split(self, began, ended, amounts):
        """Adds to windows; what lies across an edge in proportion to the time on either side."""
        start = began // self.window * self.window
        while start < ended:
            part = (min(ended, start + self.window) - max(began, start)) / (ended - began)
            sums = self.open.setdefault(start, {})
            for name, amount in amounts.items():
                sums[name] = sums.get(name, 0) + part * amount
            start += self.window

    def timed(self, name, function):
        """A function that logs its CPU time."""

        def call(*args, **kwargs):
            began, used = time.time_ns(), time.thread_time_ns()
            result = function(*args, **kwargs)
            used = time.thread_time_ns() - used
            self._split(began, max(time.time_ns(), began + 1), {name: used})
            return result

        return call

    def done(self, began, ended, work):
        self._split(began, ended, {"": work})
        for start in sorted(self.open):
            if start + self.window + LATE > ended:
                break
            sums = self.open.pop(start)
            if start >= self.first:
                say({"window": start, "ns": {name: round(sums.get(name, 0)) for name in self.NAMES}, "done": sums.get("", 0) / SECOND})


def say(what):
    print(json.dumps(what, separators=(",", ":")), flush=True)


def instrument(log):
    """Has the four functions of torch log what they take."""
    nn.Linear.forward = log.timed("forward", nn.Linear.forward)
    nn.Conv2d._conv_forward = log.timed("_conv_forward", nn.Conv2d._conv_forward)
    functional.max_pool2d = log.timed("_max_pool2d", functional.max_pool2d)
    functional.relu = log.timed("relu", functional.relu)


class Phase:
    """What runs for a while: parts of the network, each for its share of the time."""

    def __init__(self, model, number, shares):
        images, maps = torch.rand(number, 3, EDGE, EDGE), torch.rand(number, 64, EDGE, EDGE)
        features = model.convolve(images)
        self.shares = shares
        self.parts = {
            "convolve": lambda: model.convolve(images),
            "classify": lambda: model.classify(features),
            "pyramid": lambda: model.pyramid(maps),
        }
        self.work = {part: min(cpu_time(run) for _ in range(5)) for part, run in self.parts.items()}
        self.begin()

    def begin(self):
        self.used = dict.fromkeys(self.parts, 0)

    def run(self):
        """Runs one part, and tells how much work that was: the CPU time that it took at first."""
        all_used = sum(self.used.values()) + 1
        part = max(self.parts, key=lambda part: self.shares[part] * all_used - self.used[part])
        self.used[part] += cpu_time(self.parts[part])
        return self.work[part]


def cpu_time(function):
    began = time.thread_time_ns()
    function()
    return time.thread_time_ns() - began


def follow(steps, phases, log):
    """Runs phases, each for its time: steps are such as 2@0.5x93.250."""
    end = time.time_ns()
    for i, step in enumerate(steps):
        phase, rest = step.split("@")
        load, seconds = map(float, rest.split("x"))
        if i > 0:
            say({"change": end, "phase": int(phase)})
        end += int(seconds * SECOND)
        phases[int(phase)].begin()
        while (began := time.time_ns()) < end:
            work = phases[int(phase)].run()
            ended = time.time_ns()
            log.done(began, ended, work)
            if load < 1:
                time.sleep((ended - began) / SECOND * (1 / load - 1))


def main():
    window, steps, onednn = float(sys.argv[1]), sys.argv[2].split(" "), sys.argv[3:] == ["onednn"]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=onednn):
        model = VGG16().eval()
        phases = [Phase(model, *phase) for phase in PHASES]
        log = Log(int(window * SECOND))
        instrument(log)
        say({"pid": os.getpid()})
        follow(steps, phases, log)


main()
