"""How a team keeps a warehouse: what stays and what goes, few files, what is true, what jobs are."""
