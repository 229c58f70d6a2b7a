"""The accelerator as IP-XACT (IEEE 1685-2009), which Vivado and other integration tools read."""

from collections.abc import Iterable
from xml.etree import ElementTree

from trainwright.accelerator.register_files import (
    ACCESS,
    BITS,
    SIZE,
    blocks,
    described_fields,
    meaning,
)
from trainwright.accelerator.registers import HostRegister
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.build.convert import TOP
from trainwright_hw.build.package import INTERFACES, Port, package_ports

NAMESPACE = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
VENDOR, LIBRARY, VERSION = "trainwright", "ip", "1.0"
ADDRESS_SPACE, MEMORY_MAP = "memory", "registers"
_MODES = {"s_axil": "slave", "m_axi": "master", "irq": "master"}
"""Modes of interfaces; the others are slaves."""

Element = ElementTree.Element


def _add(parent: Element, tag: str, text: object = None, **attributes: str) -> Element:
    named = {f"{{{NAMESPACE}}}{name}": value for name, value in attributes.items()}
    node = ElementTree.SubElement(parent, f"{{{NAMESPACE}}}{tag}", named)
    if text is not None:
        node.text = str(text)
    return node


def _add_all(parent: Element, **texts: object) -> None:
    for tag, text in texts.items():
        _add(parent, tag, text)


def _identify(parent: Element, name: str, library: str, vendor: str, version: str) -> None:
    _add_all(parent, vendor=vendor, library=library, name=name, version=version)


def ip_xact(p: AcceleratorParameters, files: Iterable[str]) -> str:
    """Return the component: bus interfaces, register map, ports, and the Verilog ``files``."""
    ElementTree.register_namespace("spirit", NAMESPACE)
    component = Element(f"{{{NAMESPACE}}}component")
    _identify(component, TOP, LIBRARY, VENDOR, VERSION)
    ports = package_ports(p)
    interfaces = _add(component, "busInterfaces")
    for name in INTERFACES:
        _bus_interface(interfaces, name, [port for port in ports if port.interface == name])
    space = _add(_add(component, "addressSpaces"), "addressSpace")
    _add_all(space, name=ADDRESS_SPACE, range=1 << p.address_width, width=8 * p.beat_bytes)
    _memory_map(_add(component, "memoryMaps"), p)
    model = _add(component, "model")
    view = _add(_add(model, "views"), "view")
    _add_all(view, name="rtl", envIdentifier=":*Synthesis:", language="verilog", modelName=TOP)
    _add(_add(view, "fileSetRef"), "localName", "rtl")
    listed = _add(model, "ports")
    for port in ports:
        _port(listed, port)
    sources = _add(_add(component, "fileSets"), "fileSet")
    _add(sources, "name", "rtl")
    for file in files:
        _add_all(_add(sources, "file"), name=file, fileType="verilogSource")
    _add(component, "description", f"accelerator of fingerprint {p.fingerprint:08x}")
    ElementTree.indent(component)
    text = ElementTree.tostring(component, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _bus_interface(parent: Element, name: str, ports: list[Port]) -> None:
    kind, first, parameters = INTERFACES[name]
    library, bus = kind.split(":")
    node = _add(parent, "busInterface")
    _add(node, "name", name)
    reference = {"vendor": "xilinx.com", "library": library, "version": "1.0"}
    _add(node, "busType", None, name=bus, **reference)
    _add(node, "abstractionType", None, name=f"{bus}_rtl", **reference)
    mode = _add(node, _MODES.get(name, "slave"))
    if name == "m_axi":
        _add(mode, "addressSpaceRef", None, addressSpaceRef=ADDRESS_SPACE)
    elif name == "s_axil":
        _add(mode, "memoryMapRef", None, memoryMapRef=MEMORY_MAP)
    maps = _add(node, "portMaps")
    for port in ports:
        pair = _add(maps, "portMap")
        _add(_add(pair, "logicalPort"), "name", port.signal.upper() or first)
        _add(_add(pair, "physicalPort"), "name", port.name)
    values = _add(node, "parameters")
    for parameter in parameters.split(", "):
        key, value = parameter.split(" ")
        _add_all(_add(values, "parameter"), name=key, value=value)


def _port(parent: Element, port: Port) -> None:
    node = _add(parent, "port")
    _add(node, "name", port.name)
    wire = _add(node, "wire")
    _add(wire, "direction", port.direction.removesuffix("put"))
    if port.width > 1:
        _add_all(_add(wire, "vector"), left=port.width - 1, right=0)


def _memory_map(parent: Element, p: AcceleratorParameters) -> None:
    node = _add(parent, "memoryMap")
    _add(node, "name", MEMORY_MAP)
    block = _add(node, "addressBlock")
    _add_all(block, name="reg0", baseAddress=0, range=SIZE, width=BITS, usage="register")
    for name, members in blocks(p):
        first = members[0]
        if not name:
            _register(block, first, p, first.offset, array=bool(first.step))
            continue
        group = _add(block, "registerFile")
        _add_all(group, name=name, dim=first.elements(p))
        _add_all(group, addressOffset=hex(first.offset), range=first.step)
        for register in members:
            _register(group, register, p, register.offset - first.offset, array=False)


def _register(
    parent: Element, register: HostRegister, p: AcceleratorParameters, offset: int, *, array: bool
) -> None:
    node = _add(parent, "register")
    _add_all(node, name=register.name, description=meaning(register))
    if array:
        _add(node, "dim", register.elements(p))
    _add_all(node, addressOffset=hex(offset), size=BITS, access=ACCESS[register.access][0])
    reset = _add(node, "reset")
    _add(reset, "value", hex(register.reset_value(p)))
    for field in described_fields(register):
        part = _add(node, "field")
        _add_all(part, name=field.name, description=field.meaning)
        _add_all(part, bitOffset=field.low, bitWidth=field.width)
