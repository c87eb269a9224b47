"""How a team keeps a warehouse: what stays and goes, few files, what is true, jobs in a line."""
