"""A compact convolutional transformer (Hassani et al., 2021): CCT-2/3x2 for CIFAR-10, 283,723 parameters."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, LAYERS = 128, 2, 2
TOKENS = 64  # 8 x 8 of a 32 x 32 image


class Tokenizer(nn.Module):
    """Two convolutions with ReLU and max pooling: images to tokens [N, 64, 128]."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH // 2, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(WIDTH // 2, WIDTH, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        for convolution in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(convolution(x)), 3, stride=2, padding=1)
        return x.flatten(2).transpose(1, 2)


class SelfAttention(nn.Module):
    """Multi-head self-attention over the tokens."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, _ = x.shape
        qkv = self.qkv(x).view(n, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv.unbind(0))
        return self.proj(mixed.transpose(1, 2).reshape(n, tokens, WIDTH))


class EncoderLayer(nn.Module):
    """Pre-norm transformer layer: attention and two linear layers, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = SelfAttention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.fc1 = nn.Linear(WIDTH, WIDTH)
        self.fc2 = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class CCT2(nn.Module):
    """Tokens with learned positions, two transformer layers, and attention pooling over the tokens."""

    def __init__(self, num_classes: int = 10):
        super().__init__()
        self.tokenizer = Tokenizer()
        self.positions = nn.Parameter(torch.empty(1, TOKENS, WIDTH))
        self.layers = nn.Sequential(*(EncoderLayer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.pool = nn.Linear(WIDTH, 1)
        self.fc = nn.Linear(WIDTH, num_classes)
        self._initialise()

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.layers(self.tokenizer(x) + self.positions))
        weights = self.pool(tokens).softmax(dim=1)
        return self.fc((weights * tokens).sum(dim=1))

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
