"""Weights of the Lovász extension in closed form, for the kernels; csrc/lovasz/weights.h has the
formulas, docs/maths.md the proofs.

P, a, b: the foreground, and how much foreground and background is ahead of a slot; f, g: how much
of either is in it, taken as tied. m and w: what a miss and a false alarm weigh against a hit, 1 and
1 for the Jaccard index.
"""

import triton
import triton.language as tl


@triton.jit
def tied_weights(P, a, b, f, g, m, w):
    """Weights of a foreground and of a background item: the mean of "foreground first" and
    "background first".
    """
    left = (P - a - f).to(tl.float32)  # foreground behind the slot
    front, back = f.to(tl.float32), g.to(tl.float32)
    missed, wrong = (a + f).to(tl.float32), (b + g).to(tl.float32)
    # D at the corners of the slot: with all or none of its foreground and background
    both = left + m * missed + w * wrong
    no_back = both - w * back
    no_front = (left + front) + m * (missed - front) + w * wrong
    none = no_front - w * back
    share = m * P + w * wrong
    of_front = 0.5 * ((share - w * back) / (none * no_back) + share / (no_front * both))
    of_back = 0.5 * w * (left / (no_back * both) + (left + front) / (none * no_front))
    # without foreground the largest error has all the weight: the topmost slot shares it
    topmost = tl.where((b == 0) & (g > 0), 1 / tl.maximum(back, 1.0), 0.0)
    return tl.where(P > 0, of_front, 0.0), tl.where(P > 0, of_back, topmost)


@triton.jit
def cost_of_ties(f, g, of_front, of_back, m, w):
    """What the unknown order in a slot is expected to add to the squared norm of the differences
    between these weights and those of a sort; `bins_needed` of csrc/lovasz/histogram.h explains.
    """
    front, back = f.to(tl.float32), g.to(tl.float32)
    inverse = of_front + (1 - m) / w * of_back
    front_in_b = w * inverse * (inverse - 2 * of_front)
    front_in_a = 2 * (1 - m) * inverse * of_front
    back_in_b = 2 * w * inverse * of_back
    back_in_a = inverse * (w * inverse + 2 * (m - 1) * of_back)
    of_fronts = front_in_b * front_in_b * back * (back + 2) + front_in_a * front_in_a * (
        front * front - 1
    )
    of_backs = back_in_a * back_in_a * front * (front + 2) + back_in_b * back_in_b * (
        back * back - 1
    )
    return (front * of_fronts + back * of_backs) / 12
