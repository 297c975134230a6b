# Of lines "case rank host yes|no", sorted by case and rank, makes "case rank size local_rank local_size node nodes host";
# nodes are numbered by name. "no" is of a process that is no rank: its numbers are 0.
$4 != "yes" { print $1, 0, 0, 0, 0, 0, 0, $3; next }
{ host[$1, size[$1]++] = $3; if (!local_size[$1, $3]++) nodes[$1] = nodes[$1] " " $3 }
END {
  for (c in size) {
    n = split(nodes[c], node, " ")
    for (r = 0; r < size[c]; r++) {
      h = host[c, r]
      before = 0
      for (i = 1; i <= n; i++) before += node[i] < h
      print c, r, size[c], local_rank[c, h]++, local_size[c, h], before, n, h
    }
  }
}
