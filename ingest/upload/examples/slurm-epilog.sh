#!/bin/bash
# A Slurm Epilog that uploads a job's traces from each of its nodes into one retime job.
#
# In slurm.conf:      Epilog=/etc/slurm/epilog.d/retime-upload.sh
# Settings:           /etc/retime/upload.conf (owned by root; `retime upload --example slurm-conf`)
#
# It ends with 0 whatever happens, so that no node is drained, and after RETIME_EPILOG_S seconds
# at most. What it did not deliver stays in the spool; the next job's epilog, cron or
# `retime upload` delivers it. It may also be a TaskEpilog, or be run at the end of a batch script
# (srun --ntasks-per-node=1 retime-upload.sh).

set -u
# Slurm gives epilogs no search path.
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"

conf="${RETIME_UPLOAD_CONF:-/etc/retime/upload.conf}"
if [ -r "$conf" ]; then
    # shellcheck source=/dev/null
    . "$conf"
fi

say() {
    if ! logger -t retime-upload -- "$1" 2>/dev/null; then
        echo "retime-upload: $1" >&2
    fi
}

# A pattern with %j (job), %u (user) and %n (node) filled in.
filled() {
    local text="$1"
    text="${text//%j/$SLURM_JOB_ID}"
    text="${text//%u/$user}"
    text="${text//%n/${SLURMD_NODENAME:-$(hostname -s)}}"
    printf '%s' "$text"
}

# Runs a command as the job's user: traces are that user's, and are not to be read as root.
as_user() {
    if [ "$(id -u)" -eq 0 ] && [ "$user" != root ]; then
        # runuser leaves HOME as root's, and the user's credentials are in the user's own.
        runuser -u "$user" -- env "HOME=$(getent passwd "$user" | cut -d: -f6)" "$@"
    else
        "$@"
    fi
}

main() {
    if [ -z "${SLURM_JOB_ID:-}" ] || [ -z "${RETIME_WAREHOUSE:-}" ]; then
        say "not uploaded: SLURM_JOB_ID or RETIME_WAREHOUSE is not set"
        return
    fi
    user="${SLURM_JOB_USER:-$(id -un)}"
    local retime="${RETIME_COMMAND:-retime}" seconds="${RETIME_EPILOG_S:-120}"
    local traces spool ended
    traces="$(filled "${RETIME_TRACES:-/tmp/retime-traces/%j}")"
    spool="$(filled "${RETIME_SPOOL_PATTERN:-/var/tmp/retime-spool-%u}")"

    local command=(env "RETIME_WAREHOUSE=$RETIME_WAREHOUSE" "SLURM_JOB_ID=$SLURM_JOB_ID"
        "SLURM_RESTART_COUNT=${SLURM_RESTART_COUNT:-0}"
        timeout --kill-after=10 "$seconds" nice -n 10 "$retime" upload)
    if as_user test -d "$traces"; then
        command+=("$traces" --wait-idle 2s --keep)
    elif ! as_user test -d "$spool"; then
        return # a job without traces, on a node with nothing left over
    fi
    # Time to try again is what is left of the epilog's own after the traces were read once.
    command+=(--spool "$spool" --retry --for "$((seconds / 4))s" --epilogue)
    as_user "${command[@]}" 2>&1 | while IFS= read -r line; do say "job $SLURM_JOB_ID: $line"; done
    ended="${PIPESTATUS[0]}"
    if [ "$ended" -eq 126 ] || [ "$ended" -eq 127 ]; then
        say "job $SLURM_JOB_ID: the upload ended with $ended: $user cannot run $retime (RETIME_COMMAND)"
    elif [ "$ended" -ne 0 ]; then
        say "job $SLURM_JOB_ID: the upload ended with $ended; what is not delivered is in $spool"
    fi
}

main
exit 0
