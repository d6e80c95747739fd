case when p.pruned_at_seq <= :at then p.pruned_at_seq else h.pruned_at_seq end
