//! What the responses decoded by the crate look like, as far as lengths are concerned; requests are in `request_schema`.
//!
//! Taken from Kafka's message schemas (`clients/src/main/resources/common/message`); the tests in `guard` compare each
//! table and version with the crate's own encoder and decoder.

use std::ops::RangeInclusive;

use kafka_protocol::messages::ApiKey;

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) api: ApiKey,
    /// Versions described here.
    pub(super) versions: RangeInclusive<i16>,
    /// First version with varint lengths and tagged fields.
    pub(super) flexible_from: i16,
    pub(super) body: Structure,
}

/// A sequence of fields, then the tagged ones.
#[derive(Debug)]
pub(super) struct Structure {
    pub(super) fields: &'static [Field],
    pub(super) tagged: &'static [(u32, Field)],
}

/// A field and the versions that have it.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) versions: RangeInclusive<i16>,
    pub(super) kind: Kind,
}

/// How a field is laid out.
#[derive(Debug)]
pub(super) enum Kind {
    /// So many bytes.
    Fixed(usize),
    /// STRING or COMPACT_STRING, nullable or not.
    Text,
    /// BYTES or COMPACT_BYTES, nullable or not.
    Blob,
    /// ARRAY or COMPACT_ARRAY, nullable or not.
    Array(&'static Structure),
    /// The same of plain values, which carry no tagged fields of their own.
    List(&'static Self),
    /// A structure that is always there.
    Struct(&'static Structure),
}

pub(super) const LAST: i16 = i16::MAX;

pub(super) const fn since(first: i16, kind: Kind) -> Field {
    Field { versions: first..=LAST, kind }
}

pub(super) const fn between(first: i16, last: i16, kind: Kind) -> Field {
    Field { versions: first..=last, kind }
}

pub(super) const fn always(kind: Kind) -> Field {
    since(0, kind)
}

pub(super) const fn plain(fields: &'static [Field]) -> Structure {
    Structure { fields, tagged: &[] }
}

pub(super) const BOOL: Kind = Kind::Fixed(1);
pub(super) const I8: Kind = Kind::Fixed(1);
pub(super) const I16: Kind = Kind::Fixed(2);
pub(super) const I32: Kind = Kind::Fixed(4);
pub(super) const I64: Kind = Kind::Fixed(8);
pub(super) const UUID: Kind = Kind::Fixed(16);
pub(super) const TEXT: Kind = Kind::Text;
pub(super) const BLOB: Kind = Kind::Blob;
/// name, error_code, error_message
const NAMED_ERROR: Structure = plain(&[always(TEXT), always(I16), always(TEXT)]);

/// The description of an API's response.
pub(super) fn message(api: ApiKey) -> Option<&'static Message> {
    MESSAGES.iter().find(|message| message.api == api)
}

/// Every description.
pub(super) static MESSAGES: &[Message] = &[
    Message {
        api: ApiKey::ApiVersions,
        versions: 0..=4,
        flexible_from: 3,
        body: Structure {
            fields: &[
                always(I16),                                                           // error_code
                always(Kind::Array(&plain(&[always(I16), always(I16), always(I16)]))), // api_key, min, max
                since(1, I32),                                                         // throttle_time_ms
            ],
            tagged: &[
                (0, since(3, Kind::Array(&plain(&[always(TEXT), always(I16), always(I16)])))), // supported_features
                (1, since(3, I64)), // finalized_features_epoch
                (2, since(3, Kind::Array(&plain(&[always(TEXT), always(I16), always(I16)])))), // finalized_features
                (3, since(3, BOOL)), // zk_migration_ready
            ],
        },
    },
    Message {
        api: ApiKey::FindCoordinator,
        versions: 0..=6,
        flexible_from: 3,
        body: plain(&[
            since(1, I32),       // throttle_time_ms
            between(0, 3, I16),  // error_code
            between(1, 3, TEXT), // error_message
            between(0, 3, I32),  // node_id
            between(0, 3, TEXT), // host
            between(0, 3, I32),  // port
            since(
                4,
                Kind::Array(&plain(&[
                    always(TEXT), // key
                    always(I32),  // node_id
                    always(TEXT), // host
                    always(I32),  // port
                    always(I16),  // error_code
                    always(TEXT), // error_message
                ])),
            ),
        ]),
    },
    Message {
        api: ApiKey::JoinGroup,
        versions: 0..=9,
        flexible_from: 6,
        body: plain(&[
            since(2, I32),  // throttle_time_ms
            always(I16),    // error_code
            always(I32),    // generation_id
            since(7, TEXT), // protocol_type
            always(TEXT),   // protocol_name
            always(TEXT),   // leader
            since(9, BOOL), // skip_assignment
            always(TEXT),   // member_id
            always(Kind::Array(&plain(&[
                always(TEXT),   // member_id
                since(5, TEXT), // group_instance_id
                always(BLOB),   // metadata
            ]))),
        ]),
    },
    Message {
        api: ApiKey::SyncGroup,
        versions: 0..=5,
        flexible_from: 4,
        body: plain(&[
            since(1, I32),  // throttle_time_ms
            always(I16),    // error_code
            since(5, TEXT), // protocol_type
            since(5, TEXT), // protocol_name
            always(BLOB),   // assignment
        ]),
    },
    Message {
        api: ApiKey::Heartbeat,
        versions: 0..=4,
        flexible_from: 4,
        body: plain(&[
            since(1, I32), // throttle_time_ms
            always(I16),   // error_code
        ]),
    },
    Message {
        api: ApiKey::LeaveGroup,
        versions: 0..=5,
        flexible_from: 4,
        body: plain(&[
            since(1, I32), // throttle_time_ms
            always(I16),   // error_code
            since(
                3,
                Kind::Array(&plain(&[
                    always(TEXT), // member_id
                    always(TEXT), // group_instance_id
                    always(I16),  // error_code
                ])),
            ),
        ]),
    },
    Message {
        api: ApiKey::ListOffsets,
        versions: 1..=10,
        flexible_from: 6,
        body: plain(&[
            since(2, I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32),   // partition_index
                    always(I16),   // error_code
                    always(I64),   // timestamp
                    always(I64),   // offset
                    since(4, I32), // leader_epoch
                ]))),
            ]))),
        ]),
    },
    Message {
        api: ApiKey::DescribeProducers,
        versions: 0..=0,
        flexible_from: 0,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32),  // partition_index
                    always(I16),  // error_code
                    always(TEXT), // error_message
                    always(Kind::Array(&plain(&[
                        always(I64), // producer_id
                        always(I32), // producer_epoch
                        always(I32), // last_sequence
                        always(I64), // last_timestamp
                        always(I32), // coordinator_epoch
                        always(I64), // current_txn_start_offset
                    ]))),
                ]))),
            ]))),
        ]),
    },
    Message {
        api: ApiKey::DescribeConfigs,
        versions: 1..=4,
        flexible_from: 4,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(I16),  // error_code
                always(TEXT), // error_message
                always(I8),   // resource_type
                always(TEXT), // resource_name
                always(Kind::Array(&plain(&[
                    always(TEXT), // name
                    always(TEXT), // value
                    always(BOOL), // read_only
                    always(I8),   // config_source
                    always(BOOL), // is_sensitive
                    always(Kind::Array(&plain(&[
                        always(TEXT), // name
                        always(TEXT), // value
                        always(I8),   // source
                    ]))),
                    since(3, I8),   // config_type
                    since(3, TEXT), // documentation
                ]))),
            ]))),
        ]),
    },
    Message {
        api: ApiKey::CreateTopics,
        versions: 2..=7,
        flexible_from: 5,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&Structure {
                fields: &[
                    always(TEXT),   // name
                    since(7, UUID), // topic_id
                    always(I16),    // error_code
                    always(TEXT),   // error_message
                    since(5, I32),  // num_partitions
                    since(5, I16),  // replication_factor
                    since(
                        5,
                        Kind::Array(&plain(&[
                            always(TEXT), // name
                            always(TEXT), // value
                            always(BOOL), // read_only
                            always(I8),   // config_source
                            always(BOOL), // is_sensitive
                        ])),
                    ),
                ],
                tagged: &[(0, since(5, I16))], // topic_config_error_code
            })),
        ]),
    },
    Message {
        api: ApiKey::CreatePartitions,
        versions: 0..=3,
        flexible_from: 2,
        // name, error_code, error_message
        body: plain(&[always(I32), always(Kind::Array(&NAMED_ERROR))]),
    },
    Message {
        api: ApiKey::InitProducerId,
        versions: 0..=5,
        flexible_from: 2,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(I16), // error_code
            always(I64), // producer_id
            always(I16), // producer_epoch
        ]),
    },
    Message {
        api: ApiKey::OffsetForLeaderEpoch,
        versions: 2..=4,
        flexible_from: 4,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(TEXT), // topic
                always(Kind::Array(&plain(&[
                    always(I16), // error_code
                    always(I32), // partition
                    always(I32), // leader_epoch
                    always(I64), // end_offset
                ]))),
            ]))),
        ]),
    },
    Message {
        api: ApiKey::DescribeCluster,
        versions: 0..=2,
        flexible_from: 0,
        body: plain(&[
            always(I32),  // throttle_time_ms
            always(I16),  // error_code
            always(TEXT), // error_message
            since(1, I8), // endpoint_type
            always(TEXT), // cluster_id
            always(I32),  // controller_id
            always(Kind::Array(&plain(&[
                always(I32),    // broker_id
                always(TEXT),   // host
                always(I32),    // port
                always(TEXT),   // rack
                since(2, BOOL), // is_fenced
            ]))),
            always(I32), // cluster_authorized_operations
        ]),
    },
    Message {
        api: ApiKey::DescribeGroups,
        versions: 0..=6,
        flexible_from: 5,
        body: plain(&[
            since(1, I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(I16),    // error_code
                since(6, TEXT), // error_message
                always(TEXT),   // group_id
                always(TEXT),   // group_state
                always(TEXT),   // protocol_type
                always(TEXT),   // protocol_data
                always(Kind::Array(&plain(&[
                    always(TEXT),   // member_id
                    since(4, TEXT), // group_instance_id
                    always(TEXT),   // client_id
                    always(TEXT),   // client_host
                    always(BLOB),   // member_metadata
                    always(BLOB),   // member_assignment
                ]))),
                since(3, I32), // authorized_operations
            ]))),
        ]),
    },
    Message {
        api: ApiKey::ListGroups,
        versions: 0..=5,
        flexible_from: 3,
        body: plain(&[
            since(1, I32), // throttle_time_ms
            always(I16),   // error_code
            always(Kind::Array(&plain(&[
                always(TEXT),   // group_id
                always(TEXT),   // protocol_type
                since(4, TEXT), // group_state
                since(5, TEXT), // group_type
            ]))),
        ]),
    },
    Message {
        api: ApiKey::SaslHandshake,
        versions: 0..=1,
        flexible_from: LAST,
        body: plain(&[
            always(I16),                                  // error_code
            always(Kind::Array(&plain(&[always(TEXT)]))), // mechanisms
        ]),
    },
    Message {
        api: ApiKey::SaslAuthenticate,
        versions: 0..=2,
        flexible_from: 2,
        body: plain(&[
            always(I16),   // error_code
            always(TEXT),  // error_message
            always(BLOB),  // auth_bytes
            since(1, I64), // session_lifetime_ms
        ]),
    },
    Message {
        api: ApiKey::IncrementalAlterConfigs,
        versions: 0..=1,
        flexible_from: 1,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(I16),  // error_code
                always(TEXT), // error_message
                always(I8),   // resource_type
                always(TEXT), // resource_name
            ]))),
        ]),
    },
    Message {
        api: ApiKey::DeleteTopics,
        versions: 1..=6,
        flexible_from: 4,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(TEXT),   // name
                since(6, UUID), // topic_id
                always(I16),    // error_code
                since(5, TEXT), // error_message
            ]))),
        ]),
    },
    Message {
        api: ApiKey::DeleteRecords,
        versions: 0..=2,
        flexible_from: 2,
        body: plain(&[
            always(I32), // throttle_time_ms
            always(Kind::Array(&plain(&[
                always(TEXT), // name
                always(Kind::Array(&plain(&[
                    always(I32), // partition_index
                    always(I64), // low_watermark
                    always(I16), // error_code
                ]))),
            ]))),
        ]),
    },
    Message {
        api: ApiKey::DeleteGroups,
        versions: 0..=2,
        flexible_from: 2,
        body: plain(&[
            always(I32),                                               // throttle_time_ms
            always(Kind::Array(&plain(&[always(TEXT), always(I16)]))), // group_id, error_code
        ]),
    },
];
