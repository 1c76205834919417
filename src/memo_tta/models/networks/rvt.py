"""RVT*-small for ImageNet, the paper's robust vision transformer, with its published state-dict keys."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, DEPTH, MLP_RATIO = 384, 6, 12, 4
STEM = 32
TOKENS = 14 * 14  # of a 224 x 224 image
MASKED_BLOCKS = 5  # the first ones, which scale their attention logits by position
NORM_EPS = 1e-6


class PatchEmbed(nn.Module):
    """Convolutions from an image to a map of tokens, 16 times smaller per side; no position embedding."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Sequential(
            nn.Conv2d(3, STEM, 7, stride=2, padding=2),
            nn.BatchNorm2d(STEM),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.Conv2d(STEM, WIDTH, 4, stride=4),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).permute(0, 2, 3, 1)


class Attention(nn.Module):
    """Self-attention over a map (N, H, W, C), optionally with a learned scale for each pair of positions."""

    def __init__(self, is_masked: bool):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.att_mask = nn.Parameter(torch.zeros(HEADS, TOKENS, TOKENS)) if is_masked else None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(1, 2)
        q, k, v = self.qkv(tokens).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if self.att_mask is not None:
            logits = logits * self.att_mask.sigmoid()
        mixed = logits.softmax(dim=-1) @ v  # (N, heads, tokens, C / heads)
        return self.proj(mixed.transpose(1, 2).reshape(x.shape))


class ConvMlp(nn.Module):
    """MLP on a map (N, H, W, C), with a 3 x 3 depthwise convolution between its two layers."""

    def __init__(self):
        super().__init__()
        inner = WIDTH * MLP_RATIO
        self.fc1 = nn.Conv2d(WIDTH, inner, 1)
        self.bn1 = nn.BatchNorm2d(inner)
        self.dwconv = nn.Conv2d(inner, inner, 3, padding=1, groups=inner)
        self.bn2 = nn.BatchNorm2d(inner)
        self.fc2 = nn.Conv2d(inner, WIDTH, 1)
        self.bn3 = nn.BatchNorm2d(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.bn1(self.fc1(x.permute(0, 3, 1, 2))))
        y = F.gelu(self.bn2(self.dwconv(y)))
        return self.bn3(self.fc2(y)).permute(0, 2, 3, 1)


class TransformerBlock(nn.Module):
    """Attention and MLP, each with a layer norm before it and a shortcut around it."""

    def __init__(self, is_masked: bool):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=NORM_EPS)
        self.attn = Attention(is_masked)
        self.norm2 = nn.LayerNorm(WIDTH, eps=NORM_EPS)
        self.mlp = ConvMlp()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Stage(nn.Module):
    """The one stage of RVT-small: all its blocks."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(
            *(TransformerBlock(is_masked=index < MASKED_BLOCKS) for index in range(DEPTH))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)


class RVT(nn.Module):
    """Patch embedding, transformer blocks, average pooling, layer norm, linear head; for 224 x 224 images."""

    def __init__(self, num_classes: int = 1000):
        super().__init__()
        self.patch_embed = PatchEmbed()
        self.transformers = nn.Sequential(Stage())
        self.norm = nn.LayerNorm(WIDTH, eps=NORM_EPS)
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.transformers(self.patch_embed(x))
        return self.head(self.norm(x.mean(dim=(1, 2))))


def rvt_small_plus(num_classes: int = 1000) -> RVT:
    return RVT(num_classes)
