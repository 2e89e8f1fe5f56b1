"""SPIR-V's numbers, as far as the builder uses them.

Made by tools/generate_spirv.py from the SPIR-V 1.6 grammar; do not edit.
"""

MAGIC_NUMBER = 0x07230203


class Op:
    """Opcodes."""

    Extension = 10
    ExtInstImport = 11
    ExtInst = 12
    MemoryModel = 14
    EntryPoint = 15
    ExecutionMode = 16
    Capability = 17
    TypeVoid = 19
    TypeBool = 20
    TypeInt = 21
    TypeFloat = 22
    TypeVector = 23
    TypeArray = 28
    TypeRuntimeArray = 29
    TypeStruct = 30
    TypePointer = 32
    TypeFunction = 33
    ConstantTrue = 41
    ConstantFalse = 42
    Constant = 43
    ConstantComposite = 44
    Function = 54
    FunctionEnd = 56
    Variable = 59
    Load = 61
    Store = 62
    AccessChain = 65
    Decorate = 71
    MemberDecorate = 72
    CompositeConstruct = 80
    CompositeExtract = 81
    CopyObject = 83
    ConvertFToU = 109
    ConvertFToS = 110
    ConvertSToF = 111
    ConvertUToF = 112
    UConvert = 113
    SConvert = 114
    FConvert = 115
    Bitcast = 124
    SNegate = 126
    FNegate = 127
    IAdd = 128
    FAdd = 129
    ISub = 130
    FSub = 131
    IMul = 132
    FMul = 133
    UDiv = 134
    SDiv = 135
    FDiv = 136
    UMod = 137
    IAddCarry = 149
    UMulExtended = 151
    LogicalEqual = 164
    LogicalNotEqual = 165
    LogicalOr = 166
    LogicalAnd = 167
    LogicalNot = 168
    Select = 169
    IEqual = 170
    INotEqual = 171
    UGreaterThan = 172
    SGreaterThan = 173
    UGreaterThanEqual = 174
    SGreaterThanEqual = 175
    ULessThan = 176
    SLessThan = 177
    ULessThanEqual = 178
    SLessThanEqual = 179
    FOrdEqual = 180
    FUnordNotEqual = 183
    FOrdLessThan = 184
    FOrdGreaterThan = 186
    FOrdLessThanEqual = 188
    FOrdGreaterThanEqual = 190
    ShiftRightLogical = 194
    ShiftRightArithmetic = 195
    ShiftLeftLogical = 196
    BitwiseOr = 197
    BitwiseXor = 198
    BitwiseAnd = 199
    Not = 200
    BitCount = 205
    ControlBarrier = 224
    AtomicLoad = 227
    AtomicStore = 228
    AtomicIAdd = 234
    Phi = 245
    LoopMerge = 246
    SelectionMerge = 247
    Label = 248
    Branch = 249
    BranchConditional = 250
    Return = 253
    GroupNonUniformBroadcast = 337
    GroupNonUniformBallot = 339
    GroupNonUniformShuffle = 345
    GroupNonUniformShuffleXor = 346
    GroupNonUniformIAdd = 349
    GroupNonUniformFAdd = 350
    GroupNonUniformIMul = 351
    GroupNonUniformFMul = 352
    GroupNonUniformSMin = 353
    GroupNonUniformUMin = 354
    GroupNonUniformSMax = 356
    GroupNonUniformUMax = 357
    GroupNonUniformBitwiseAnd = 359
    GroupNonUniformBitwiseOr = 360
    GroupNonUniformBitwiseXor = 361


class Capability:
    """Values of Capability."""

    Shader = 1
    Float16 = 9
    Float64 = 10
    Int64 = 11
    Int16 = 22
    Int8 = 39
    PhysicalStorageBufferAddresses = 5347
    StorageBuffer16BitAccess = 4433
    StorageBuffer8BitAccess = 4448
    GroupNonUniform = 61
    GroupNonUniformArithmetic = 63
    GroupNonUniformBallot = 64
    GroupNonUniformShuffle = 65
    DenormPreserve = 4464
    DenormFlushToZero = 4465
    SignedZeroInfNanPreserve = 4466
    RoundingModeRTE = 4467
    BFloat16TypeKHR = 5116


class FPEncoding:
    """Values of FPEncoding."""

    BFloat16KHR = 0


class StorageClass:
    """Values of StorageClass."""

    Input = 1
    Workgroup = 4
    Function = 7
    PushConstant = 9
    PhysicalStorageBuffer = 5349


class Decoration:
    """Values of Decoration."""

    Block = 2
    ArrayStride = 6
    BuiltIn = 11
    NonWritable = 24
    NonReadable = 25
    Offset = 35
    NoContraction = 42


class BuiltIn:
    """Values of BuiltIn."""

    NumWorkgroups = 24
    WorkgroupId = 26
    LocalInvocationId = 27
    LocalInvocationIndex = 29
    SubgroupId = 40
    SubgroupLocalInvocationId = 41


class ExecutionMode:
    """Values of ExecutionMode."""

    LocalSize = 17
    DenormPreserve = 4459
    DenormFlushToZero = 4460
    SignedZeroInfNanPreserve = 4461
    RoundingModeRTE = 4462


class ExecutionModel:
    """Values of ExecutionModel."""

    GLCompute = 5


class AddressingModel:
    """Values of AddressingModel."""

    PhysicalStorageBuffer64 = 5348


class MemoryModel:
    """Values of MemoryModel."""

    GLSL450 = 1


class MemoryAccess:
    """Values of MemoryAccess."""

    Aligned = 2


class LoopControl:
    """Values of LoopControl."""

    Unroll = 1
    DontUnroll = 2


class Scope:
    """Values of Scope."""

    Device = 1
    Workgroup = 2
    Subgroup = 3


class MemorySemantics:
    """Values of MemorySemantics."""

    AcquireRelease = 8
    UniformMemory = 64
    WorkgroupMemory = 256


class GroupOperation:
    """Values of GroupOperation."""

    Reduce = 0


class Glsl:
    """Instructions of GLSL.std.450."""

    RoundEven = 2
    Trunc = 3
    FAbs = 4
    Floor = 8
    Ceil = 9
    Sqrt = 31
    Fma = 50
    UMin = 38
    SMin = 39
    UMax = 41
    SMax = 42
    FindUMsb = 75
    PackHalf2x16 = 58
    UnpackHalf2x16 = 62
