//! The rounds of algorithm S_FT, and the set of nodes with blocks that a node knows after each round: the
//! loops of Figure 3 and procedure `vect_mask` of Figure 4c of the 1989 paper, in closed form.
//!
//! Stage i sorts subcubes of dimension i + 1, along the dimensions i, i - 1, ..., 0. A last stage n
//! moves no records and informs all nodes of the result. A node's block at the start of a stage
//! travels with the stage's own messages: after the step along dimension j a node knows the blocks
//! of exactly those nodes that differ from it only in the bits i, ..., j.
//!
//! The paper's recursion has an error: it prints d = 2^i where d = 2^j is meant. A test contains
//! both.
//!
//! Must never: look at a record. The module is arithmetic on node numbers.

use std::fmt;

use crate::vcube::Node;

/// One exchange between all neighbours along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SftRound {
    /// The paper's i. In the last stage, log2 of the number of nodes.
    pub stage: u32,
    /// The paper's j: partners differ in this bit.
    pub step: u32,
    /// Whether this round belongs to the last stage, which moves no records.
    pub is_last: bool,
}

impl fmt::Display for SftRound {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "stage {} step {}", self.stage, self.step)
    }
}

/// Returns the rounds on 2^`dimension` nodes, in order. The last `dimension` of them move no
/// records.
pub fn rounds(dimension: u32) -> impl Iterator<Item = SftRound> + use<> {
    (0..=dimension).flat_map(move |stage| {
        let round = SftRound {
            stage,
            step: 0,
            is_last: stage == dimension,
        };
        let steps = (0..round.dimension()).rev();
        steps.map(move |step| SftRound { step, ..round })
    })
}

impl SftRound {
    /// Returns the dimension of the subcubes in which the nodes exchange their blocks in this stage.
    pub fn dimension(self) -> u32 {
        self.stage + u32::from(!self.is_last)
    }

    /// Returns the node with which a node exchanges.
    pub fn partner(self, node: Node) -> Node {
        Node(node.0 ^ 1 << self.step)
    }

    /// Returns whether a node has the lower number of the two partners.
    pub fn is_lower(self, node: Node) -> bool {
        node.0 >> self.step & 1 == 0
    }

    /// Returns whether a node keeps the smaller records.
    pub fn keeps_smaller(self, node: Node) -> bool {
        (node.0 >> (self.stage + 1) ^ node.0 >> self.step) & 1 == 0
    }

    /// Returns whether the exchange is within the subcubes that the previous stage has sorted.
    pub fn is_within(self) -> bool {
        self.step < self.stage
    }

    /// Returns the nodes with blocks that a node knows at the end of this round, itself included.
    pub fn mask(self, node: Node) -> Mask {
        self.mask_down_to(node, self.step)
    }

    /// Returns the nodes with blocks that a node knows at the start of this round.
    pub fn mask_before(self, node: Node) -> Mask {
        self.mask_down_to(node, self.step + 1)
    }

    fn mask_down_to(self, node: Node, lowest: u32) -> Mask {
        Mask {
            node,
            bits: (1 << self.dimension()) - (1 << lowest),
        }
    }

    /// Returns the nodes that forward a block in this stage on its path between two nodes, from the
    /// neighbour of `from` to the neighbour of `to`. Any of them may have changed it.
    pub fn path(self, from: Node, to: Node) -> Vec<Node> {
        let mut at = from.0;
        let mut path = Vec::new();
        for bit in (0..self.dimension()).rev().map(|step| 1 << step) {
            if (at ^ to.0) & bit != 0 {
                at ^= bit;
                path.push(Node(at));
            }
        }
        path.pop();
        path
    }
}

/// A set of nodes that agree in all bits except some: a bit vector of the paper, for any number of
/// nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    node: Node,
    bits: u32,
}

impl Mask {
    /// Returns a node's subcube of this dimension.
    pub fn subcube(node: Node, dimension: u32) -> Mask {
        Mask {
            node,
            bits: (1 << dimension) - 1,
        }
    }

    /// Returns whether the set contains a node.
    pub fn contains(self, node: Node) -> bool {
        (node.0 ^ self.node.0) & !self.bits == 0
    }

    /// Returns the number of nodes.
    pub fn count(self) -> usize {
        1 << self.bits.count_ones()
    }

    /// Returns the nodes, ascending.
    pub fn nodes(self) -> impl Iterator<Item = Node> + use<> {
        let (mut next, bits) = (Some(0_u32), self.bits);
        let base = self.node.0 & !bits;
        std::iter::from_fn(move || {
            let at = next?;
            // The next number with bits only among these: a carry passes through the others.
            next = (at != bits).then(|| (at | !bits).wrapping_add(1) & bits);
            Some(Node(base | at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Procedure vect_mask of Figure 4c; `printed` keeps the paper's d = 2^i.
    fn vect_mask(i: u32, j: u32, node: u32, printed: bool) -> BTreeSet<u32> {
        let d = 1 << if printed { i } else { j };
        let other = if node % (d << 1) < d {
            node + d
        } else {
            node - d
        };
        if j == i {
            return BTreeSet::from([node, other]);
        }
        let mut mask = vect_mask(i, j + 1, other, printed);
        mask.extend(vect_mask(i, j + 1, node, printed));
        mask
    }

    fn numbers(mask: Mask) -> Vec<u32> {
        mask.nodes().map(|node| node.0).collect()
    }

    #[test]
    fn the_rounds_of_eight_nodes() {
        let pairs: Vec<(u32, u32)> = rounds(3).map(|round| (round.stage, round.step)).collect();
        let sorting = [(0, 0), (1, 1), (1, 0), (2, 2), (2, 1), (2, 0)];
        assert_eq!(pairs, [&sorting[..], &[(3, 2), (3, 1), (3, 0)]].concat());
        assert!(rounds(3).all(|round| round.is_last == (round.stage == 3)));
        assert_eq!(rounds(0).count(), 0);
    }

    #[test]
    fn the_printed_recursion_never_knows_more_than_two_nodes() {
        assert_eq!(vect_mask(2, 0, 5, true), BTreeSet::from([1, 5]));
        assert_eq!(vect_mask(2, 0, 5, false), (0..8).collect());
    }

    /// Carries sets of nodes from node to node, as the messages do.
    #[test]
    fn masks_equal_the_sets_that_messages_carry() {
        for dimension in 1..=7 {
            let nodes = 1_u32 << dimension;
            let mut known: Vec<BTreeSet<u32>> = Vec::new();
            for round in rounds(dimension) {
                if round.step + 1 == round.dimension() {
                    known = (0..nodes).map(|node| BTreeSet::from([node])).collect();
                }
                for node in 0..nodes {
                    let before = numbers(round.mask_before(Node(node)));
                    assert!(before.iter().eq(&known[node as usize]), "{round} {node}");
                }
                let old = known.clone();
                for node in 0..nodes {
                    let Node(partner) = round.partner(Node(node));
                    known[node as usize].extend(&old[partner as usize]);
                    assert!(
                        numbers(round.mask(Node(node)))
                            .iter()
                            .eq(&known[node as usize])
                    );
                }
            }
            assert!(known.iter().all(|set| set.len() == nodes as usize));
        }
    }

    proptest! {
        #[test]
        fn the_closed_form_is_the_recursion(stage in 0_u32..10, low in 0_u32..10, node in 0_u32..2048) {
            let step = low.min(stage);
            let round = SftRound { stage, step, is_last: false };
            let mask = round.mask(Node(node));
            let recursion = vect_mask(stage, step, node, false);
            prop_assert!(numbers(mask).iter().eq(&recursion));
            prop_assert_eq!(mask.count(), recursion.len());
            let mut all = 0..4096;
            prop_assert!(all.all(|at| mask.contains(Node(at)) == recursion.contains(&at)));
            // The last stage has the same masks as the stage before.
            let last = SftRound { stage: stage + 1, step, is_last: true };
            prop_assert_eq!(last.mask(Node(node)), mask);
        }

        #[test]
        fn a_path_goes_from_neighbour_to_neighbour(stage in 0_u32..10, from: u32, to: u32) {
            let round = SftRound { stage, step: 0, is_last: false };
            let nodes = 1 << round.dimension();
            let (from, to) = (Node(from % nodes), Node(to % nodes));
            let mut stops = vec![from];
            stops.extend(round.path(from, to));
            if from != to {
                stops.push(to);
            }
            let bits = stops.windows(2).map(|pair| pair[0].0 ^ pair[1].0);
            let bits: Vec<u32> = bits.collect();
            prop_assert!(bits.iter().all(|bit| bit.is_power_of_two()));
            prop_assert!(bits.is_sorted_by(|one, next| one > next));
        }
    }
}
